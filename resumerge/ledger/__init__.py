"""The SQLite file of a run: plan, progress, attempts, events, samples.

`Ledger` has a named method for every query and change; no other package uses SQL. A column is
declared once, in `tables`. `RunStore` finds the ledgers below a state folder, `snapshot` keeps a
copy in case one is damaged, and `import_ledger` takes over one from an untrusted mirror. This
folder knows nothing of plans or of what files contain. What ledgers from elsewhere are validated
against (options, names of dtypes, of uses and of reasons) comes from the rooms that declare it.
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
