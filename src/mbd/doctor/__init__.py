"""`mbd doctor`: what works here, what does not, and what to do about it.

- :mod:`mbd.doctor.installation`: Python, packages, git, disk space
- :mod:`mbd.doctor.device`: processor and GPU as torch sees them
- :mod:`mbd.doctor.dvc_remotes`: the DVC repository of this folder and its remotes
- :mod:`mbd.doctor.services`: store, keys, Pushgateway, Kubeflow host, as the parameters name them
"""

from mbd.doctor import installation, services
from mbd.doctor.finding import (
    ANSWER_SECONDS,
    LOADING_SECONDS,
    CheckState,
    DoctorCheck,
    DoctorFinding,
    ask_child,
    run_checks,
)
from mbd.params import Params

__all__ = ["CheckState", "DoctorFinding", "diagnose"]


def diagnose(params: Params) -> list[DoctorFinding]:
    """Check everything; takes a few seconds even where hosts do not answer."""
    return run_checks(
        {
            "python": DoctorCheck(installation.python),
            "packages": DoctorCheck(installation.packages),
            "git": DoctorCheck(installation.git_repository),
            "disk": DoctorCheck(installation.disk),
            "device": DoctorCheck(lambda: ask_child("mbd.doctor.device", params.training.device), LOADING_SECONDS + 1),
            "DVC": DoctorCheck(lambda: ask_child("mbd.doctor.dvc_remotes"), LOADING_SECONDS + 1),
            "store": DoctorCheck(
                lambda: services.store(params.store), 3 * ANSWER_SECONDS
            ),  # it connects, asks, and asks why
            "keys": DoctorCheck(lambda: services.keys(params.certificate)),
            "Pushgateway": DoctorCheck(lambda: services.pushgateway(params.monitoring.pushgateway)),
            "Kubeflow": DoctorCheck(lambda: services.kubeflow(params.platform.kubeflow_host)),
        }
    )
