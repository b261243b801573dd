"""What a merge will need, from the plan alone: memory, disk, download and time.

`estimate` combines `memory` and `time`. Nothing here measures the machine: `host/` does. Imports
from planning/: backend and plan.
"""
