"""Google Cloud Storage and Azure on this machine: emulators, each a process of its own.

`fake-gcs-server` is part of the test extra. `azurite` is a program of Node.js: it is found on the
PATH, or in `node_modules/` of the repository, where ``npm install --no-save azurite`` puts it.
"""

from loopback_clouds.clouds import KINDS, Cloud, Container, missing, start

__all__ = ["KINDS", "Cloud", "Container", "missing", "start"]
