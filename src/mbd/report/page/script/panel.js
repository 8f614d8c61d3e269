// The page: files are chosen or dropped, the checks run, and each result is put into the list.

const at = (id) => document.getElementById(id);
const given = new Map();
const MARKS = { passed: "✓", failed: "✗", "not checkable": "–" };
const STYLES = { passed: "passed", failed: "failed", "not checkable": "unknown" };
let turn = 0;

/** Browsers number files that are downloaded twice: "proof (1).json" is proof.json. */
const plainName = (name) => name.replace(/ ?\(\d+\)(?=\.[^.]+$)/, "");

async function check(files) {
  for (const file of files) given.set(plainName(file.name), file);
  const mine = ++turn;
  show("open", "Checking …", []);
  at("progress").hidden = false;
  const progress = (share) => mine === turn && (at("progress").value = share);
  const checks = await verifyFiles(new Map(given), at("panel").dataset.certificate, Date.now() / 1000, progress);
  if (mine !== turn) return; // more files have come in the meantime
  at("progress").hidden = true;
  at("clear").hidden = false;
  show(genuine(checks) ? "genuine" : VERDICTS[decide(checks)].severity, inWordsOf(checks), checks);
}

/** Show what was found; `kind` decides the colour. */
function show(kind, words, checks) {
  at("checks").replaceChildren(...checks.map(line));
  at("verdict").dataset.kind = kind;
  at("verdict").textContent = words;
}

function line({ name, outcome, reason }) {
  const item = document.createElement("li");
  item.className = STYLES[outcome];
  const parts = { mark: MARKS[outcome], name, outcome, reason };
  for (const [kind, text] of Object.entries(parts)) {
    const part = document.createElement("span");
    part.className = kind;
    part.textContent = text;
    if (kind === "mark") part.ariaHidden = "true";
    item.append(part, " ");
  }
  return item;
}

/** Check what was dropped. A page that is opened as a file may not look into folders, so these have to be chosen. */
function drop(transfer) {
  const folders = Array.from(transfer.items).some((item) => item.webkitGetAsEntry?.()?.isDirectory);
  if (folders) show("open", "A dropped folder cannot be read. Choose it above, or drop the files in it.", []);
  else check(Array.from(transfer.files));
}

function clear() {
  turn++;
  given.clear();
  at("files").value = at("folder").value = "";
  at("clear").hidden = at("progress").hidden = true;
  show("open", "Nothing has been checked yet.", []);
  at("files").focus();
}

for (const id of ["files", "folder"]) {
  at(id).addEventListener("change", (event) => check(Array.from(event.target.files)));
}
at("clear").addEventListener("click", clear);
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  at("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
  });
}
at("drop").addEventListener("drop", (event) => drop(event.dataTransfer));
// A file that misses the box would otherwise replace the page.
for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
