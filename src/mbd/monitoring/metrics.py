"""Every metric that Prometheus is told: name, help text and labels, in one place.

Names end in their base unit (seconds, ratio, epsilon), or count what they name. Labels stay bounded: models and
modalities are few, all others take their values from lists in the code. No label holds a digest or an id.

    role        before | after | reference: which model was measured (:mod:`mbd.evaluation.leakage`)
    kind        empirical | certified | exact: what a certificate guarantees
    state       of a request (:mod:`mbd.requests.record`) or of a certificate (:mod:`mbd.certificate.status`)
    step        a command, as `delete` or `request-run`
    reason      why a step failed: failure, usage, refused, unverified, bad_data, interrupted
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """What a number is called and what it means."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


BUILD = Metric("mbd_build_info", "Version of the software that speaks; always 1.", ("version", "python"))

# requests
REQUESTS = Metric("mbd_requests", "Requests to forget, by state.", ("model", "state"))
OLDEST_PENDING = Metric(
    "mbd_request_oldest_pending_age_seconds", "Time since the oldest request that is still owed came in.", ("model",)
)
NEAREST_DEADLINE = Metric(
    "mbd_request_nearest_deadline_seconds",
    "Time until the first request that is still owed is due; negative: it was due.",
    ("model",),
)
REQUEST_EVENT = Metric(
    "mbd_request_last_event_timestamp_seconds",
    "When a request for this modality came into this state last.",
    ("model", "modality", "state"),
)

# certificates and the log
CERTIFICATES = Metric("mbd_certificates", "Published certificates that verify.", ("model", "kind", "state"))
REAUDIT_BY = Metric(
    "mbd_certificate_reaudit_timestamp_seconds",
    "By when the model of the last standing certificate for this modality is to be attacked again.",
    ("model", "modality", "kind"),
)
UNVERIFIED = Metric(
    "mbd_verification_failures",
    "Objects in the store that are not what they should be: certificates (or statements about them), requests, "
    "the log.",
    ("what",),
)
LOG_ENTRIES = Metric("mbd_log_entries", "Entries of the transparency log.")
LOG_TIME = Metric("mbd_log_checkpoint_timestamp_seconds", "When the head of the transparency log was signed.")
LOG_MISSING = Metric(
    "mbd_log_missing_certificates", "Entries of the transparency log for which the store holds nothing that verifies."
)

# evidence
LEAKAGE = Metric(
    "mbd_leakage_ratio",
    "What an attack's first measure (an accuracy, AUC, share or R²) reaches on the model as released.",
    ("model", "modality", "attack", "role"),
)
GATE_ROOM = Metric(
    "mbd_leakage_gate_room_ratio",
    "How much an attack is short of being surely above the reference and chance, over all its measures; "
    "negative: the gate is closed.",
    ("model", "modality", "attack"),
)
LEAKAGE_EPSILON = Metric(
    "mbd_leakage_lower_bound_epsilon", "Privacy loss that the attacks have shown at least.", ("model",)
)
UTILITY = Metric(
    "mbd_utility_ratio",
    "Accuracy, F1 or correlation when only the modalities of the regime are given.",
    ("model", "metric", "regime", "role"),
)
EVALUATION = Metric(
    "mbd_evaluation_ratio",
    "Accuracy, F1 or correlation by the last evaluation, under each regime of missing and corrupted modalities.",
    ("model", "metric", "regime", "corrupted"),
)
EVALUATION_ERROR = Metric(
    "mbd_evaluation_mean_absolute_error",
    "Mean absolute error, in units of the label, by the last evaluation, under each regime.",
    ("model", "regime", "corrupted"),
)
BUDGET_SPENT = Metric(
    "mbd_budget_spent_epsilon", "Privacy budget that the lineage has spent by its last certified deletion.", ("model",)
)
BUDGET_LIMIT = Metric("mbd_budget_limit_epsilon", "Privacy budget at which deletions of the lineage stop.", ("model",))

# steps
STEP_SUCCESS = Metric(
    "mbd_step_last_success_timestamp_seconds", "When the step came to a good end last.", ("step", "model")
)
STEP_FAILURE = Metric(
    "mbd_step_last_failure_timestamp_seconds", "When the step failed last, and why.", ("step", "model", "reason")
)
STEP_DURATION = Metric("mbd_step_duration_seconds", "How long the last run of the step took.", ("step", "model"))
STEP_PHASE = Metric(
    "mbd_step_phase_duration_seconds", "How long a phase of the last run of the step took.", ("step", "model", "phase")
)
STEP_SCHEDULE = Metric(
    "mbd_step_schedule_interval_seconds", "Time between two scheduled runs of the step.", ("step", "model")
)
EDITED = Metric(
    "mbd_deletion_edited_parameters",
    "Positions of the weights that the last deletion edited.",
    ("model", "modality", "method"),
)
DELETION_EPSILON = Metric(
    "mbd_deletion_guarantee_epsilon",
    "Privacy loss that the last deletion is proven to stay below.",
    ("model", "modality", "method"),
)
UNDELIVERED = Metric(
    "mbd_push_last_failure_timestamp_seconds",
    "When metrics of the step could not be pushed and were left in a textfile.",
    ("step", "model"),
)

# purge
TOMBSTONES = Metric("mbd_tombstones", "Files that were purged and must never come back.")
RESURRECTED = Metric(
    "mbd_resurrected_files", "Files that were purged and have come back, by where they were found.", ("place",)
)
BLIND = Metric("mbd_purge_blind_places", "Places, or parts of them, that could not be searched.", ("place",))
PURGE_SCAN = Metric("mbd_purge_scan_timestamp_seconds", "When places were last searched for purged files.")

# the exporter itself
STORE_UP = Metric("mbd_store_up", "Whether the last look at the store came through.")
SCAN_TIME = Metric("mbd_store_scan_timestamp_seconds", "When the store was last looked through as a whole.")
SCAN_DURATION = Metric("mbd_store_scan_duration_seconds", "How long the last whole look at the store took.")
SCAN_READ = Metric(
    "mbd_store_objects_read_total", "Objects that were read because they were new or changed.", (), "counter"
)
SCAN_FAILURES = Metric("mbd_store_scan_failures_total", "Looks at the store that failed.", (), "counter")

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
