"""The page for people who log in with Hugging Face, as a Space serves it.

`people` says who asks, by the session of their browser, and gives each a `folder` of their own: a
`Workspace` whose processes have the person's token and nothing of this process's secrets
(`environment`), within `limits`, and whose merges have a mirror under the person's name. `parts` is
what the page has beside the other one's; `server` serves it.
"""
