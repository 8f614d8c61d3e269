#!/usr/bin/env bash
# What a new user types, from a wheel to a verified certificate in an empty folder, with times and bytes, as a transcript.
#
#   benchmarks/first_hour.sh WHEEL [VENV]     VENV: an environment to install into [default: a new one, removed at the end]
#
# TORCH_INDEX names an index with builds of torch for CPUs, and CONSTRAINTS a file that pins versions.
set -euo pipefail
wheel=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
venv=${2:-$work/venv}
constraints=${CONSTRAINTS:+--constraint $(realpath "$CONSTRAINTS")}
export PIP_DISABLE_PIP_VERSION_CHECK=1 DVC_NO_ANALYTICS=1
unset PYTHONPATH

step() { # print a command, run it, print how long it took
  printf '\n$ %s\n' "$*"
  local began=$SECONDS
  bash -euo pipefail -c "$*"
  printf '# %d s\n' $((SECONDS - began))
}

[ -d "$venv" ] || python3 -m venv "$venv"
venv=$(realpath "$venv")
[ -z "${TORCH_INDEX:-}" ] || "$venv/bin/pip" install --quiet --no-deps --index-url "$TORCH_INDEX" $constraints torch
export PATH=$venv/bin:$PATH
mkdir "$work/mine"
cd "$work/mine"
step "pip install --quiet --force-reinstall --no-deps '$wheel' && pip install --quiet $constraints 'missing-by-design[train,privacy,data] @ file://$wheel'"
du -sm "$venv" | awk '{print "# " $1 " MB installed"}'

cat > own.py <<'PYTHON'
import csv
import random

random.seed(0)
with open("own.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["id", "label", "split", *(f"voice_{k}" for k in range(6)), *(f"words_{k}" for k in range(8))])
    for n in range(900):
        score = max(-3, min(3, random.gauss(0, 1)))
        split = "train" if n < 600 else "valid" if n < 700 else "test"
        cells = [score + random.gauss(0, 1) for _ in range(14)]
        rows.writerow([f"speaker{n // 10}_{n}", score, split, *cells[:5], "" if n % 100 == 3 else cells[5], *cells[6:]])
PYTHON
cat > paper.py <<'PYTHON'
import torch
from torch import nn


class Fusion(nn.Module):
    def __init__(self, words, voice, hidden=16):
        super().__init__()
        self.words_net = nn.Sequential(nn.Linear(words, hidden), nn.Tanh())
        self.voice_net = nn.Sequential(nn.Linear(voice, hidden), nn.Tanh())
        self.out = nn.Linear(2 * hidden, 1)

    def forward(self, words, voice):
        return self.out(torch.cat([self.words_net(words), self.voice_net(voice)], dim=1))
PYTHON
step "python own.py && head -2 own.csv && cat paper.py"
step "mbd init --data own.csv --model paper:Fusion --set 'model.inputs=[words, voice]' --set requests.modality=voice"
step "dvc repro dvc.yaml release/dvc.yaml"
step "mbd verify build/published --model build/deleted --store file://build/store --trust build/keys/trust.json"
printf '\n# %d s in all\n' "$SECONDS"
