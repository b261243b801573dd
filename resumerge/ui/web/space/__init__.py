"""The page for people who log in with Hugging Face, as a Space serves it.

`people` identifies a person by the browser's session, and creates the person's `folder`. That is a
`Workspace` within `limits`, whose merges have a mirror under the person's name. Its processes have
the person's token and no secrets of this process (`environment`). `parts` has the additional parts
of the page, and `server` serves it.
"""
