"""The SQLite file of a run: plan, progress, attempts, events, samples.

`Ledger` has a named method for every query and change; no other package uses SQL. A column is
declared once, in `tables`. `RunStore` finds the ledgers below a state folder, `snapshot` keeps a
copy in case a ledger is damaged, and `import_ledger` imports a ledger from an untrusted mirror.
This folder does not depend on plans or on the contents of files. The options, dtypes, uses and
reasons that an imported ledger may contain are declared in other rooms.
"""

from resumerge.ledger.attempts import Sample
from resumerge.ledger.connection import Row, now
from resumerge.ledger.ledger import LEDGER_FILE, Ledger, read_run
from resumerge.ledger.snapshot import (
    SNAPSHOT_FILE,
    copy_ledger,
    is_reconciled,
    restore_snapshot,
    take_snapshot,
)
from resumerge.ledger.unit_measurements import UnitMeasurements
from resumerge.ledger.units import Progress, Totals, UnitCommit

__all__ = [
    "LEDGER_FILE",
    "SNAPSHOT_FILE",
    "Ledger",
    "Progress",
    "Row",
    "Sample",
    "Totals",
    "UnitCommit",
    "UnitMeasurements",
    "copy_ledger",
    "is_reconciled",
    "now",
    "read_run",
    "restore_snapshot",
    "take_snapshot",
]
