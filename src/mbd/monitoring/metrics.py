"""The definition of every metric: name, help text and labels.

Names end in their base unit (seconds, ratio, epsilon) or in what they count. The values of labels are bounded: models
and modalities are few, and all others come from lists in the code. No label holds a digest or an id.

    role        before | after | reference: which model was measured (:mod:`mbd.formats.leakage`)
    kind        exact | certified | attested | empirical: what a certificate guarantees
    release     registered | certified: what kind of statement the current release was published by
    state       of a request (:mod:`mbd.formats.request`) or of a certificate (:mod:`mbd.history.state`)
    verdict     on a certificate (:mod:`mbd.formats.verdict`)
    step        a command, such as `delete` or `request-run`
    reason      why a step failed: failure, usage, refused, unverified, bad_data, interrupted; which limit of the HTTP
                interface: rate, body; or why an inference request was refused: malformed, too_large, unknown_model,
                invalid_input, revoked_modality, unavailable, overloaded, failed
    pipeline    train | delete | reaudit | sweep (:mod:`mbd.params.platform`)
    route       a path of the HTTP interface with its variables, such as /requests/{id}
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """Name, help text, labels and type of a metric."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    buckets: tuple[float, ...] = ()
    """upper bounds, of a histogram"""


BUILD = Metric("mbd_build_info", "Version of the exporter; the value is always 1.", ("version", "python"))

# requests
REQUESTS = Metric("mbd_requests", "Deletion requests, by state.", ("model", "state"))
OLDEST_PENDING = Metric(
    "mbd_request_oldest_pending_age_seconds", "Time since the oldest open request was received.", ("model",)
)
NEAREST_DEADLINE = Metric(
    "mbd_request_nearest_deadline_seconds",
    "Time until the nearest deadline of an open request; negative: overdue.",
    ("model",),
)
REQUEST_EVENT = Metric(
    "mbd_request_last_event_timestamp_seconds",
    "When a request for this modality last entered this state.",
    ("model", "modality", "state"),
)

# certificates and the log
CERTIFICATES = Metric(
    "mbd_certificates",
    "Published certificates, by state and by the verdict that it leads to.",
    ("model", "kind", "state", "verdict"),
)
REAUDIT_BY = Metric(
    "mbd_certificate_reaudit_timestamp_seconds",
    "When the next re-audit of the current certificate for this modality is due.",
    ("model", "modality", "kind"),
)
UNVERIFIED = Metric(
    "mbd_verification_failures",
    "Objects in the store that do not verify or cannot be parsed: certificates and statements, requests, the log.",
    ("what",),
)
LOG_ENTRIES = Metric("mbd_log_entries", "Entries in the transparency log.")
LOG_TIME = Metric(
    "mbd_log_checkpoint_timestamp_seconds", "When the latest checkpoint of the transparency log was signed."
)
LOG_MISSING = Metric(
    "mbd_log_missing_certificates", "Entries in the transparency log without a verified object in the store."
)

# models
MODEL_RELEASED = Metric(
    "mbd_model_release_timestamp_seconds",
    "When the current release of a model was registered or certified.",
    ("model", "release"),
)
MODEL_USABLE = Metric(
    "mbd_model_usable",
    "Whether the current release of a model has seen nothing that is revoked for its name; 0 also if there is none.",
    ("model",),
)
MODEL_REVOKED = Metric(
    "mbd_model_revoked_modalities", "Modalities that no release of a model may take: always 1.", ("model", "modality")
)
MODEL_REFERENCE = Metric(
    "mbd_model_references",
    "Whether a reference is registered that never saw this modality of the current release.",
    ("model", "modality"),
)
RETRAIN_BY = Metric(
    "mbd_model_retrain_timestamp_seconds",
    "When a model should be trained again (registration.retrain_days); past: retraining is overdue.",
    ("model",),
)

# evidence
LEAKAGE = Metric(
    "mbd_leakage_ratio",
    "First measure of an attack (accuracy, AUC, share or R²) on the model as released.",
    ("model", "modality", "attack", "role"),
)
GATE_ROOM = Metric(
    "mbd_leakage_gate_room_ratio",
    "Smallest margin of an attack to the gate (tolerance minus confidence bound), over all its measures; "
    "negative: the gate is closed.",
    ("model", "modality", "attack"),
)
LEAKAGE_EPSILON = Metric(
    "mbd_leakage_lower_bound_epsilon", "Lower bound of the privacy loss that the attacks have demonstrated.", ("model",)
)
UTILITY = Metric(
    "mbd_utility_ratio",
    "Accuracy, F1 or correlation with only the modalities of the regime as input.",
    ("model", "metric", "regime", "role"),
)
EVALUATION = Metric(
    "mbd_evaluation_ratio",
    "Accuracy, F1 or correlation in the last evaluation, by regime of missing and corrupted modalities.",
    ("model", "metric", "regime", "corrupted"),
)
EVALUATION_ERROR = Metric(
    "mbd_evaluation_mean_absolute_error",
    "Mean absolute error in the last evaluation, in units of the label, by regime.",
    ("model", "regime", "corrupted"),
)
BUDGET_SPENT = Metric(
    "mbd_budget_spent_epsilon", "Privacy budget spent by the lineage up to its last certified deletion.", ("model",)
)
BUDGET_LIMIT = Metric(
    "mbd_budget_limit_epsilon", "Privacy budget of the lineage; a deletion that would exceed it is refused.", ("model",)
)

# steps
STEP_SUCCESS = Metric("mbd_step_last_success_timestamp_seconds", "When the step last succeeded.", ("step", "model"))
STEP_FAILURE = Metric(
    "mbd_step_last_failure_timestamp_seconds", "When the step last failed, by reason.", ("step", "model", "reason")
)
STEP_DURATION = Metric("mbd_step_duration_seconds", "Duration of the last run of the step.", ("step", "model"))
STEP_PHASE = Metric(
    "mbd_step_phase_duration_seconds", "Duration of a phase in the last run of the step.", ("step", "model", "phase")
)
STEP_SCHEDULE = Metric(
    "mbd_step_schedule_interval_seconds", "Interval between scheduled runs of the step.", ("step", "model")
)
EDITED = Metric(
    "mbd_deletion_edited_parameters",
    "Number of parameters that the last deletion edited.",
    ("model", "modality", "method"),
)
DELETION_EPSILON = Metric(
    "mbd_deletion_guarantee_epsilon",
    "Proven upper bound of the privacy loss of the last deletion.",
    ("model", "modality", "method"),
)
UNDELIVERED = Metric(
    "mbd_push_last_failure_timestamp_seconds",
    "When pushing the metrics of the step last failed; they were written to a textfile.",
    ("step", "model"),
)

# purge
TOMBSTONES = Metric("mbd_tombstones", "Purged files, which must not reappear.")
RESURRECTED = Metric("mbd_resurrected_files", "Purged files that have reappeared, by place.", ("place",))
BLIND = Metric("mbd_purge_blind_places", "Places, or parts of places, that could not be searched.", ("place",))
PURGE_SCAN = Metric("mbd_purge_scan_timestamp_seconds", "When the last search for purged files ended.")

# the exporter itself
STORE_UP = Metric("mbd_store_up", "Whether the last scan of the store succeeded.")
SCAN_TIME = Metric("mbd_store_scan_timestamp_seconds", "When the last complete scan of the store ended.")
SCAN_DURATION = Metric("mbd_store_scan_duration_seconds", "Duration of the last complete scan of the store.")
SCAN_READ = Metric(
    "mbd_store_objects_read_total", "Objects read from the store because they were new or changed.", (), "counter"
)
SCAN_FAILURES = Metric("mbd_store_scan_failures_total", "Scans of the store that failed.", (), "counter")

KUBEFLOW_UP = Metric("mbd_kubeflow_up", "Whether Kubeflow answered when it was last asked for runs.")
KUBEFLOW_FAILED = Metric(
    "mbd_kubeflow_last_run_failures",
    "How many schedules of a pipeline failed when they last ran, and its last run without one, by Kubeflow's API.",
    ("pipeline",),
)

# inference
INFERENCE_SECONDS = Metric(
    "mbd_inference_duration_seconds",
    "Duration of an answered inference request, from its last byte in to the answer.",
    ("model",),
    "histogram",
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)
INFERENCE_ROWS = Metric(
    "mbd_inference_batch_rows",
    "Rows that were computed at once.",
    ("model",),
    "histogram",
    tuple(2.0**power for power in range(13)),
)
INFERENCE_QUEUED = Metric("mbd_inference_queued_rows", "Rows that wait to be computed.")
INFERENCE_REFUSED = Metric(
    "mbd_inference_refused_total", "Inference requests that were refused, by reason.", ("model", "reason"), "counter"
)
INFERENCE_READY = Metric("mbd_inference_ready", "Whether a release of the model is served.", ("model",))
INFERENCE_RELEASE = Metric(
    "mbd_inference_release_timestamp_seconds", "When the release that is served was issued.", ("model",)
)
INFERENCE_SWAPS = Metric(
    "mbd_inference_swaps_total",
    "Releases that took the place of another one while it was served.",
    ("model",),
    "counter",
)
INFERENCE_LOADS_FAILED = Metric(
    "mbd_inference_failed_loads_total",
    "Attempts to load the current release that failed, or that the guard refused.",
    ("model",),
    "counter",
)
INFERENCE_LOG = Metric("mbd_inference_log_read_timestamp_seconds", "When the model server last read the log.")

# the HTTP interface
HTTP_SECONDS = Metric(
    "mbd_http_request_duration_seconds",
    "Duration of HTTP requests, by method, route and status.",
    ("method", "route", "status"),
    "histogram",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
HTTP_LIMITED = Metric(
    "mbd_http_refused_requests_total", "HTTP requests refused by a limit, by reason.", ("reason",), "counter"
)
STORE_WRITABLE = Metric(
    "mbd_store_writable", "Whether the store took the last change of a request over HTTP, or has changed since."
)
STORE_WRITE_FAILURES = Metric(
    "mbd_store_write_failures_total", "Changes of requests over HTTP that the store did not take.", (), "counter"
)
WEBHOOK_PENDING = Metric("mbd_webhook_pending_events", "Changes of requests that a webhook has not accepted yet.")
WORKER_UP = Metric("mbd_worker_up", "Whether the worker beside the server is running.")
WEBHOOK_FAILURES = Metric("mbd_webhook_failures_total", "Posts to webhooks that failed.", (), "counter")

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
