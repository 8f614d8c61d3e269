"""`mbd doctor`: what works here, what does not, and what to do about it.

- :mod:`mbd.doctor.installation`: Python, packages, git, disk space
- :mod:`mbd.doctor.device`: processor and GPU as torch sees them
- :mod:`mbd.doctor.dvc_remotes`: the DVC repository of this folder and its remotes
- :mod:`mbd.doctor.services`: store, Pushgateway, Kubeflow host, as the parameters name them
"""

from mbd.doctor import installation, services
from mbd.doctor.finding import ANSWER_SECONDS, LOADING_SECONDS, Check, Finding, State, ask_child, run_checks
from mbd.params import Params

__all__ = ["Finding", "State", "diagnose"]


def diagnose(params: Params) -> list[Finding]:
    """Check everything; takes a few seconds even where hosts do not answer."""
    return run_checks(
        {
            "python": Check(installation.python),
            "packages": Check(installation.packages),
            "git": Check(installation.git_repository),
            "disk": Check(installation.disk),
            "device": Check(lambda: ask_child("mbd.doctor.device", params.training.device), LOADING_SECONDS + 1),
            "DVC": Check(lambda: ask_child("mbd.doctor.dvc_remotes"), LOADING_SECONDS + 1),
            "store": Check(lambda: services.store(params.store), 3 * ANSWER_SECONDS),  # it connects, asks, and asks why
            "Pushgateway": Check(lambda: services.pushgateway(params.monitoring.pushgateway)),
            "Kubeflow": Check(lambda: services.kubeflow(params.platform.kubeflow_host)),
        }
    )
