"""The record of a shard that a cluster task computed: hashes of its units, and its object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from resumerge.digests import HASH_BYTES
from resumerge.engine.shards.checksums import unit_checksum
from resumerge.ledger import Progress, UnitCommit, UnitMeasurements
from resumerge.planning.plan import Plan, Shard

_SHA256 = re.compile("[0-9a-f]{64}")
_WRONG = (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError)


@dataclass(frozen=True)
class Uploaded:
    """A shard in a bucket, as described by the machine that uploaded it.

    Args:
        nbytes: the size of the file in bytes.
        sha256: the SHA-256 of the file in hex digits.
        version: the ETag of the object after the upload.
    """

    nbytes: int
    sha256: str
    version: str

    @classmethod
    def of_json(cls, value: Any) -> Uploaded | None:
        """Return the object from the `uploaded` value of a record's JSON; None for null.

        Raises:
            ValueError: the value describes no uploaded shard.
            TypeError: the value describes no uploaded shard.
        """
        if value is None:
            return None
        nbytes, sha256, version = value
        if type(nbytes) is not int or type(version) is not str or not _SHA256.fullmatch(sha256):
            raise ValueError("not an uploaded shard")
        return cls(nbytes, sha256, version)


@dataclass(frozen=True)
class ShardRecord:
    """The result of computing one shard.

    Args:
        fingerprint: the fingerprint of the run that the task belongs to; records of other runs do
            not fit.
        units: the shard's units in order, all complete. Their `number` is the number in the plan.
        uploaded: the shard's object in a bucket; None for a shard in a folder.
    """

    fingerprint: str
    units: tuple[UnitCommit, ...]
    uploaded: Uploaded | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        upload = self.uploaded
        return {
            "fingerprint": self.fingerprint,
            "units": [
                [u.number, u.hashes.hex(), u.input_hashes.hex(), u.seconds] for u in self.units
            ],
            "measurements": [u.measurements and u.measurements.as_json() for u in self.units],
            "uploaded": None if upload is None else [upload.nbytes, upload.sha256, upload.version],
        }

    @classmethod
    def of_bytes(cls, data: bytes, key: str | None = None) -> ShardRecord | None:
        """Return the record in an untrusted file; None if the file holds no valid record.

        Args:
            data: the file's content, JSON.
            key: the record's key in the file's JSON object; None if the whole object is the record.
        """
        with suppress(*_WRONG):
            value = json.loads(data)
            return cls.of_json(value if key is None else value[key])
        return None

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> ShardRecord:
        """Return the record from a JSON value in the form of `as_json`.

        Raises:
            ValueError: the value is no record.
            TypeError: the value is no record.
            KeyError: the value is no record.
            AttributeError: the value is no record.
        """
        unit_commits = []
        # Records of earlier versions have no measurements.
        measurement_values = value.get("measurements") or [None] * len(value["units"])
        for (number, hex_hashes, hex_input_hashes, seconds), measurement_value in zip(
            value["units"], measurement_values, strict=True
        ):
            hashes = bytes.fromhex(hex_hashes)
            checksum = unit_checksum(hashes)
            measurements = (
                None if measurement_value is None else UnitMeasurements.of_json(measurement_value)
            )
            if measurements is not None and measurements.blocks * HASH_BYTES != len(hashes):
                raise ValueError("no measurements of these blocks")
            unit_commits.append(
                UnitCommit(
                    number=int(number),
                    hashes=hashes,
                    input_hashes=bytes.fromhex(hex_input_hashes),
                    checksum=checksum,
                    seconds=float(seconds),
                    measurements=measurements,
                )
            )
        uploaded = Uploaded.of_json(value.get("uploaded"))
        return cls(str(value["fingerprint"]), tuple(unit_commits), uploaded)

    def fits(self, plan: Plan, shard: Shard, fingerprint: str) -> bool:
        """Return whether the record describes this shard of this run and hashes every block."""
        units = plan.units[shard.first : shard.last]
        return self.fingerprint == fingerprint and [
            (unit.number, unit.blocks * HASH_BYTES) for unit in units
        ] == [(commit.number, len(commit.hashes)) for commit in self.units]

    @property
    def mirrored(self) -> tuple[int, str] | None:
        """The bytes and SHA-256 of a shard in a bucket; None for a shard in a folder."""
        return None if self.uploaded is None else (self.uploaded.nbytes, self.uploaded.sha256)

    def contradicts(self, progress: Sequence[Progress]) -> bool:
        """Return whether the ledger has another hash for a committed block of the shard.

        Args:
            progress: the progress of every unit of the plan.
        """
        return any(not unit.hashes.startswith(progress[unit.number].hashes) for unit in self.units)
