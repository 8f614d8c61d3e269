"""One deletion by the tasks of the pipeline, for the tests that only look at it."""

import pytest

from tests.kubeflow.workspace import ArtifactWorkspace
from tests.pipelines.small import UNCUT


@pytest.fixture(scope="package")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> ArtifactWorkspace:
    """A deletion of audio that was certified and published, and one that the gate refused."""
    workspace = ArtifactWorkspace(tmp_path_factory.mktemp("bench"))
    workspace.prepare()
    workspace.delete()
    workspace.certify(request='{"reference": "ticket-7"}', run="run-42")
    workspace.publish()
    workspace.delete("-uncut", UNCUT)
    return workspace
