"""One deletion from request to release, in five stages: delete → evaluate → attack → certify → publish.

`mbd request run` runs them in a row (:meth:`Stages.run`); in the pipeline `delete` each is a task. Whole modalities are
deleted by `deletion.method`, and the new model is attacked beside the reference. Recordings of persons are deleted
exactly, so there is nothing to attack, and the new model is evaluated on data without them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from mbd.features.leave_out import leave_out
from mbd.formats.deletion import DELETION, DeletionRecord
from mbd.formats.statement import DeletionStatement
from mbd.model.checkpoint import load_model
from mbd.params import Params
from mbd.production.releases import find_base, not_taken
from mbd.shredding.private_folder import private_folder
from mbd.steps import attack, certify, delete, evaluate, publish
from mbd.steps.certify import CertifyResult
from mbd.steps.delete import DeletionResult
from mbd.steps.publish import PublishResult
from mbd.steps.step import reads
from mbd.verifier.bundle import Bundle

STAGES = ("delete", "evaluate", "attack", "certify", "publish")
DELETED, BUNDLE = "deleted", "bundle"


@dataclass(frozen=True)
class Stages:
    """The stages of one deletion."""

    params: Params
    modalities: Sequence[str] = ()
    subjects: Sequence[str] = ()
    """persons whose recordings are deleted: their ids, or after `delete` their pseudonyms; of all if empty"""

    def run(
        self,
        features: Path,
        model: Path,
        reference: Path | None,
        request: Path,
        work: Path,
        ended: Callable[[str], object] = lambda _: None,
    ) -> CertifyResult:
        """Run all stages up to the certificate. Each writes a folder of its own in `work`.

        `ended` is called with what was done, as soon as it was: deleted, evaluated, attacked.

        Raises:
            GateRefusedError: The gate refused the new model.
        """
        deleted, evaluation = work / DELETED, work / "evaluation"
        self.delete(features, model, reference, deleted)
        ended("deleted")
        self.evaluate(features, deleted, reference, evaluation)
        ended("evaluated")
        leakage = self.attack(features, model, deleted, reference, work / "leakage")
        if leakage:
            ended("attacked")
        return self.certify(deleted, leakage, evaluation, work / BUNDLE, request)

    def delete(self, features: Path, model: Path, reference: Path | None, out: Path) -> DeletionResult | None:
        """Delete the modalities from `model`; see :func:`mbd.steps.delete.run`."""
        params = self.params
        if self.subjects:
            params, reference = params.having({"deletion.method": "exact"}), None
        return delete.run(params, features, model, self.modalities, self.subjects, out, reference)

    @reads("deleted")
    def evaluate(self, features: Path, deleted: Path, reference: Path | None, out: Path) -> None:
        """Evaluate the new model: beside the reference, or on data without the recordings that were deleted."""
        if not self.subjects:
            evaluate.run(self.params, features, [deleted, *([reference] if reference else [])], out)
            return
        target = DeletionRecord.read(deleted / DELETION, "deletion record", "delete again").request
        recordings = dict.fromkeys(target.modalities, frozenset(target.subjects))
        with private_folder(gettempdir()) as retained:
            leave_out(features, retained, recordings, not_taken(load_model(deleted)[0], features))
            evaluate.run(self.params, retained, [deleted], out)

    def attack(
        self,
        features: Path,
        before: Path | None,
        deleted: Path,
        reference: Path | None,
        out: Path,
        show: Callable[[str], object] = lambda _: None,
    ) -> Path | None:
        """Attack the new model; return `out`, or None where recordings of persons were deleted: nothing is attacked.

        See :func:`mbd.steps.attack.run`.
        """
        if self.subjects or reference is None:
            return None
        attack.run(self.params, features, before, deleted, reference, self.modalities, out, show=show)
        return out

    def certify(
        self, deleted: Path, leakage: Path | None, evaluation: Path, out: Path, request: Path | None = None
    ) -> CertifyResult:
        """Certify what was shown, or refuse; see :func:`mbd.steps.certify.run`."""
        return certify.run(self.params, deleted, leakage, evaluation, out, request=request)

    @reads("bundle", "deleted")
    def publish(
        self, bundle: Path, deleted: Path, store: str, out: Path | None = None, base: Path | None = None
    ) -> PublishResult:
        """Publish the certificate of a deletion from the release that is current; see :func:`mbd.steps.publish.run`.

        Where the log has no release of the name, `base` is the model that was deleted from.

        Raises:
            DataError: Another release has become current since, so the certificate would bring back an older model.
        """
        certificate = Bundle(bundle)
        if isinstance(certificate.statement, DeletionStatement):
            current = find_base(self.params, store, base)
            current.refuse_stale(certificate.statement, certificate.digest, deleted)
        return publish.run(self.params, bundle, deleted, store, out)
