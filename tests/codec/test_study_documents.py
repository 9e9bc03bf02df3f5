"""Documents of trials, studies and tables: the same bytes, old files load, nonsense is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgspec
import pytest
from optimizer.study_samples import ENVIRONMENT, entry, proposal, step_entry, study, trial

from kernel_compass.codec import dispatch_table, study_document, trial_document
from kernel_compass.errors import StudyError
from kernel_compass.records.dispatch import DispatchTable, TokenRange
from kernel_compass.records.problem import ProblemSource
from kernel_compass.records.step_action import StepActionKind
from kernel_compass.records.study import Interruption, RecordedStudy, StudyState, Tell
from kernel_compass.records.trial import Candidate, Reason

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDED = RecordedStudy(
    study(), (trial(1, True), trial(2), trial(5, reason=None, accepted=True)), (entry(),)
)
TABLE = DispatchTable().merged(
    [
        entry(),
        entry("study-b", 2, 1.4),
        entry("study-b", 3, tokens=(TokenRange(1, 1), TokenRange(65, 128)), sizes=(8, 128, 512)),
    ],
    {"study-a": ENVIRONMENT, "study-b": ENVIRONMENT},
)
STEPS = TABLE.merged(
    [],
    {"study-s": ENVIRONMENT},
    [
        step_entry("product", files={}, added_bytes=7680),
        step_entry("triton_config", trial=2),
        step_entry(trial=3),
        step_entry("compile_region", "study-b", 4, 1.3),
        step_entry("step_graph", trial=4),
    ],
)
DOCUMENTS = {
    "trial-1.json": (trial_document, trial(1, True)),
    "study-1.json": (study_document, RECORDED),
    "dispatch-table-1.json": (dispatch_table, TABLE),
    "dispatch-table-2.json": (dispatch_table, STEPS),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_golden_file_loads_and_is_written_the_same(name):
    codec, record = DOCUMENTS[name]
    data = (GOLDEN / name).read_bytes()
    assert codec.decode(data) == record
    assert codec.encode(record) == data


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_cut_and_every_foreign_field_is_refused(name):
    codec, record = DOCUMENTS[name]
    data = codec.encode(record)
    for end in range(0, len(data) - 2, 97):
        with pytest.raises(StudyError):
            codec.decode(data[:end])
    found = json.loads(data)
    for key in found:
        less = {one: value for one, value in found.items() if one != key}
        for wrong in (less, {**found, key: {"?": 1}}, {**found, f"{key}x": 1}):
            with pytest.raises(StudyError):
                codec.decode(json.dumps(wrong))
    with pytest.raises(StudyError, match="newer"):
        codec.decode(json.dumps({**found, "schema": found["schema"][:-1] + "9999999999999"}))


def test_the_order_of_keys_and_whole_floats_decide_nothing():
    one = trial(proposed=proposal())
    config = dict(reversed(one.proposal.candidate.config.items()))
    candidate = replace(one.proposal.candidate, config=config)
    other = replace(one, proposal=replace(one.proposal, candidate=candidate, cost_s=2.0))
    assert trial_document.encode(one) == trial_document.encode(other)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(trial(), reason=None),
        replace(trial(1, True), reason=trial().reason),
        replace(trial(), number=0),
        replace(trial(), fidelity_error_pct=float("inf")),
        replace(trial(), added_bytes=1 << 70),
        replace(trial(), detail="\ud800"),
        replace(trial(), results=(replace(trial().results[0], candidate_us=0.0),)),
        replace(trial(), workload=3),
    ],
)
def test_a_trial_that_contradicts_itself_is_not_written(wrong):
    with pytest.raises(StudyError, match="cannot be recorded"):
        trial_document.encode(wrong)


REASONS_OF_VERSION_1 = """
    build_failed compile_timeout does_not_fit not_supported run_timeout illegal_access crashed
    exited out_of_memory too_much_output raised wrong_shape not_finite wrong_result over_budget
    no_better_than_zeros partial_result wrong_elsewhere not_repeatable changes_inputs
    writes_outside reads_outside low_precision stale_result caches_by_identity lazy_result
    side_stream no_work patched changes_state keeps_running baseline_in_disguise knows_the_seed
    looks_at_the_judge too_few_bytes faster_than_hardware not_faster inferior_elsewhere hold_out
    cannot_be_timed cannot_pay remembered""".split()  # noqa: SIM905
"""What files hold: a name may be added, and none may go."""


@pytest.mark.parametrize("reason", [*REASONS_OF_VERSION_1, *sorted(Reason)])
def test_every_reason_is_written_and_read(reason):
    one = trial(reason=Reason(reason))
    study_of_it = replace(RECORDED, trials=(one,), entries=())
    assert f'"{reason}"' in trial_document.encode(one).decode()
    assert trial_document.decode(trial_document.encode(one)) == one
    assert trial_document.decode(trial_document.encode_line(one)) == one
    assert study_document.decode(study_document.encode(study_of_it)) == study_of_it
    assert study_document.decode(study_document.canonical(study_of_it)).trials[0].reason == reason


def test_a_reason_that_is_none_is_refused():
    found = trial_document.encode(trial()).replace(b'"not_faster"', b'"looks_good"')
    with pytest.raises(StudyError, match="looks_good"):
        trial_document.decode(found)


def with_paths(folder):
    """The same study as one machine and another would record it."""
    source = ProblemSource(f"{folder}/problem.py", {}, "ab" * 32)
    of = replace(study().request, source=source)
    proposed = replace(proposal(), candidate=Candidate("mine", {}, None, f"{folder}/problem.py"))
    detail = f'File "{folder}/problem.py", line 3: 3 GB/s, and/or {folder}/a/b.cu:7 (in {folder}/x)'
    return of, trial(1, proposed=proposed, detail=detail)


def test_the_canonical_export_has_no_name_times_or_paths():
    exports = []
    for folder, date, name in (("/home/one/x", "2026-01-01", "s-1"), ("/srv/two", None, "s-2")):
        request, ended = with_paths(folder)
        environment = replace(ENVIRONMENT, date=date)
        recorded = RecordedStudy(
            replace(study(), identifier=name, request=request, environment=environment,
                    state=StudyState.FINISHED),
            (ended, trial(2, True)),
            (entry(name, 2), entry(name, 2, sizes=(1, 2, 3)))[:: 1 if date else -1],
            tells=(Tell("s", 1, 1.0),) if date else (),
            interruptions=(Interruption(1, 1, "?", True),) if date else (),
            begun=date,
        )  # fmt: skip
        exports.append(study_document.canonical(recorded))
    assert exports[0] == exports[1]
    text = exports[0].decode()
    assert "/home" not in text and "/srv" not in text and "2026" not in text
    assert "3 GB/s, and/or b.cu:7 (in x)" in text
    study_document.decode(exports[0])  # and it is a study's document


def test_changes_to_steps_are_in_force_by_the_rules_of_products():
    in_force = [one.reference for one in STEPS.steps]
    assert len(STEPS.step_contributions) == 5 and "study-s:3" not in in_force
    assert "study-b:4" in in_force
    without = STEPS.without("study-b", 4)
    assert "study-s:3" in [one.reference for one in without.steps]
    assert dispatch_table.encode(STEPS.without("study-s")) != dispatch_table.encode(TABLE)
    gone = STEPS.without("study-s").without("study-b", 4)
    assert dispatch_table.encode(gone) == dispatch_table.encode(TABLE)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(step_entry(), trial=0),
        replace(step_entry(), added_bytes=-1),
        replace(step_entry(), speedup=replace(step_entry().speedup, low=9.0)),
        replace(step_entry("product"), action=replace(step_entry("product").action,
                candidate=None)),
        replace(step_entry(), action=replace(step_entry().action, kind=StepActionKind.PRODUCT)),
        replace(step_entry(), action=replace(step_entry().action, settings={"x": float("nan")})),
        replace(step_entry("product"), action=replace(step_entry("product").action,
                candidate=Candidate("own_decode", {}, "w99"))),
        replace(step_entry(), action=replace(step_entry().action,
                kind=StepActionKind.TRITON_CONFIG)),
    ],
)  # fmt: skip
def test_a_change_to_a_step_that_contradicts_itself_is_not_written(wrong):
    with pytest.raises(StudyError, match="contradicts itself"):
        dispatch_table.encode(DispatchTable().merged([], {"study-s": ENVIRONMENT}, [wrong]))


def with_parts(parts):
    one = step_entry("product", files={})
    target = replace(one.action.target, parts=parts)
    return replace(one, action=replace(one.action, target=target))


def test_products_of_one_input_keep_what_they_are_made_of():
    columns = with_parts(()).action.target.workload.columns
    entry = with_parts((columns - 1024, 1024))
    table = DispatchTable().merged([], {"study-s": ENVIRONMENT}, [entry])
    assert dispatch_table.decode(dispatch_table.encode(table)).steps == (entry,)
    wrong = DispatchTable().merged([], {"study-s": ENVIRONMENT}, [with_parts((columns, 1))])
    with pytest.raises(StudyError, match="contradicts itself"):
        dispatch_table.encode(wrong)


def test_version_1_has_no_steps():
    found = json.loads(dispatch_table.encode(TABLE))
    with pytest.raises(StudyError, match="no field `steps`"):
        dispatch_table.decode(json.dumps({**found, "steps": []}))


def test_the_schema_says_what_the_code_does():
    jsonschema.validate(json.loads(dispatch_table.encode(STEPS)), dispatch_table.schema())
    shipped, here = dispatch_table.schema(), msgspec.json.schema(dispatch_table.TableDocument)
    here["$defs"]["TableDocument"]["properties"]["schema"] = {"const": dispatch_table.SCHEMA}
    assert shipped["$defs"] == here["$defs"]
    for key in ("entries", "studies", "outdone", "steps"):
        wrong = json.loads(dispatch_table.encode(STEPS))
        del wrong[key]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, dispatch_table.schema())
