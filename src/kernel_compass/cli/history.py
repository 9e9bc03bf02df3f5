"""`kernel-compass history`: the studies that were run, and what was rejected in them."""

from __future__ import annotations

from typing import Annotated

import typer

from kernel_compass.cli.output import emit

HistoryJsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
RejectedOption = Annotated[
    bool,
    typer.Option("--rejected", help="What was rejected and is not tried again, over all studies."),
]


def history(rejected: RejectedOption = False, json: HistoryJsonOption = False) -> None:
    """List the studies of this user, the latest last: state, target, trials, best speedup.

    They lie in $KERNEL_COMPASS_HOME, else in the user's data folder. A ledger that cannot be read
    is listed with the reason.
    """
    from kernel_compass import api
    from kernel_compass.report.studies import history_text, rejected_text, study_line

    if rejected:
        ideas = api.rejected_ideas()
        emit(_json([_plain(one) for one in ideas]) if json else rejected_text(ideas), None)
        return
    found = api.list_studies()
    if json:
        emit(_json([_study(one) for one in found]), None)
        return
    lines = [study_line(one.name, one.recorded, one.problem) for one in found]
    emit(history_text(lines, str(api.studies_folder())), None)


def _study(listed: object) -> object:
    from kernel_compass.api.studies import ListedStudy

    assert isinstance(listed, ListedStudy)
    recorded = listed.recorded
    if recorded is None:
        return {"name": listed.name, "folder": str(listed.folder), "problem": listed.problem}
    return {
        "name": listed.name,
        "folder": str(listed.folder),
        "state": recorded.study.state.value,
        "target": recorded.study.request.source.target,
        "begun": recorded.begun,
        "changed": recorded.changed,
        "trials": len(recorded.trials),
        "accepted": [one.number for one in recorded.accepted],
        "pending": [one.number for one in recorded.pending],
    }


def _plain(record: object) -> object:
    from kernel_compass.codec.canonical import plain

    return plain(record)


def _json(found: object) -> str:
    from kernel_compass.codec.canonical import indented

    return indented(found).decode()
