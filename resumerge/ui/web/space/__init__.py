"""The page for people who log in with Hugging Face, as a Space serves it.

`people` identifies a person by the session of the browser, and gives each person a `folder`: a
`Workspace` whose processes have the person's token and no secrets of this process (`environment`),
within `limits`, and whose merges have a mirror under the person's name. `parts` has the additional
parts of the page; `server` serves it.
"""
