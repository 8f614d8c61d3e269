"""`mbd doctor`: what works here, what does not, and what to do about it.

- :mod:`mbd.doctor.installation`: Python, packages, git, disk space, processor and GPU
- :mod:`mbd.doctor.services`: DVC remotes, store, keys, Pushgateway, Kubeflow host, as the parameters name them
"""

from collections.abc import Callable, Iterable, Mapping

from mbd.doctor import installation, services
from mbd.doctor.installation import CheckState, DoctorFinding
from mbd.params import Params
from mbd.urls import without_credentials

__all__ = ["CheckState", "DoctorFinding", "diagnose", "run_checks"]


def diagnose(params: Params) -> list[DoctorFinding]:
    """Check everything, one after another; hosts that do not answer take a few seconds each."""
    return run_checks(
        {
            "python": installation.check_python,
            "packages": installation.check_packages,
            "git": installation.check_git,
            "disk": installation.check_disk,
            "device": lambda: installation.check_device(params.training.device),
            "DVC": services.check_dvc,
            "store": lambda: services.check_store(params.store),
            "keys": lambda: services.check_keys(params.certificate),
            "state": lambda: services.check_state(params.deletion.ledgers),
            "Pushgateway": lambda: services.check_pushgateway(params.monitoring.pushgateway),
            "Kubeflow": lambda: services.check_kubeflow(params.platform.kubeflow_host),
        }
    )


def run_checks(checks: Mapping[str, Callable[[], Iterable[DoctorFinding]]]) -> list[DoctorFinding]:
    """Return the findings of all checks; one that breaks is a finding, not the end of the others."""
    findings: list[DoctorFinding] = []
    for name, check in checks.items():
        try:
            findings += check()
        except Exception as error:
            reason = without_credentials(f"{type(error).__name__}: {error}")
            findings.append(DoctorFinding(name, CheckState.FAILED, reason, "the check itself broke; please report it"))
    return findings
