"""The SQLite file of a run: plan, progress, attempts, events, samples.

`ledger` has the class `Ledger`, with a named method for every query and change. Its attributes are
the tables that change after planning: `units` has those of units and shards, `attempts` those of
attempts, events and samples, and `files` those of files that a run has written, downloaded or
mirrored. `unit_measurements` has the sums over blocks that a unit's row contains.

A column is declared once, in `tables`, with one of the `validators`. `schema_check` creates and
checks the schema, `validity` checks the values that are read, and `file_names` the names of files
from an untrusted source. `connection` has the transactions, and `database` loads sqlite-utils
without its plugins. No other package uses SQL on a ledger.

`run_store` finds the ledgers below a state folder, `snapshot` keeps a copy in case a ledger is
damaged, and `import_ledger` imports a ledger from an untrusted mirror. This folder does not depend
on plans or on the contents of files. The options, dtypes, uses and reasons that an imported ledger
may contain are declared in other rooms.
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
