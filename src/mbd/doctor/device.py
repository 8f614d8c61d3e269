"""The processor and GPU as torch sees them. Run as a module by `mbd doctor`: torch takes seconds to load."""

import sys

from mbd.doctor.finding import CheckState, DoctorFinding, print_findings
from mbd.errors import MissingExtraError


def device(wanted: str) -> DoctorFinding:
    """Report the device that training would use with `training.device` = `wanted` (auto, cpu or cuda)."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        hint = MissingExtraError("training", "train", "torch").hint
        return DoctorFinding("device", CheckState.NOT_CONFIGURED, "torch is not installed", hint)
    found = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count()))
        unused = " (training.device=cpu does not use it)" if wanted == "cpu" else ""
        return DoctorFinding("device", CheckState.OK, f"{found}, CUDA {torch.version.cuda}: {names}{unused}")
    if wanted == "cuda":
        to_do = "set training.device=auto, or install a GPU driver and a torch built for CUDA"
        return DoctorFinding("device", CheckState.FAILED, f"{found}, and no GPU though training.device=cuda", to_do)
    return DoctorFinding("device", CheckState.OK, f"{found}, CPU only")


if __name__ == "__main__":
    print_findings([device(sys.argv[1])])
