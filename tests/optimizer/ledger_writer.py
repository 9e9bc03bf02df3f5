"""A study that is written as fast as it can be, and says what was recorded once it was."""

from __future__ import annotations

import sys
from pathlib import Path

from optimizer.study_samples import entry, proposal, study, trial

from kernel_compass.optimizer.ledger import Ledger
from kernel_compass.records.study import Tell

ACCEPTED_EVERY = 3


def main(folder: Path) -> None:
    exists = (folder / "ledger.sqlite").exists()
    with Ledger.resume(folder) if exists else Ledger.create(study(), folder) as ledger:
        print("open", flush=True)
        while True:
            recorded = ledger.recorded
            waiting = recorded.pending
            number = waiting[0].number if waiting else recorded.next_number
            proposed = proposal(number)
            ledger.begin(number, "bmm 16x1x128x512", proposed)
            print(f"begun {number}", flush=True)
            accepted = number % ACCEPTED_EVERY == 0
            entries = [entry(trial=number)] if accepted else []
            ledger.end(
                trial(number, accepted, proposed=proposed),
                entries,
                [Tell("search", number, float(number))],
            )
            print(f"{'accepted' if accepted else 'ended'} {number}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
