// The console. It shows what the HTTP interface answers, and enters requests. Every text is set as text, never as HTML.
"use strict";

const byId = (id) => document.getElementById(id);
const STORAGE = "mbd-token";
const GOOD = new Set(["certified", "valid"]);
const BAD = new Set(["refused", "failed", "revoked", "refuted", "outdated", "unknown"]);
const OPEN = new Set(["received", "running", "failed"]);
const PAGE = 20;
const lists = { requests: { rows: [], next: null }, certificates: { rows: [], next: null } };
let models = [];
let stream = null;
let mayOperate = true;

class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || `The server answers ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

function headers(more = {}) {
  const token = sessionStorage.getItem(STORAGE);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function ask(path, options = {}) {
  const response = await fetch(path, { ...options, headers: headers(options.headers) });
  const kind = response.headers.get("content-type") || "";
  const content = kind.includes("json") ? await response.json() : await response.text();
  if (!response.ok) throw new Refused(response.status, typeof content === "string" ? {} : content);
  return content;
}

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function say(text, kind) {
  const place = byId("message");
  place.hidden = !text;
  place.dataset.kind = kind;
  place.textContent = text;
}

function explain(error) {
  const problem = error.problem || {};
  const known = problem.known ? ` There are: ${problem.known.join(", ")}.` : "";
  const hint = problem.hint ? ` ${problem.hint}.` : "";
  const id = problem.request_id ? ` (${problem.request_id})` : "";
  say(`${error.message}.${known}${hint}${id}`.replace("..", "."), "bad");
}

const day = (time) => time.slice(0, 10);

function due(time) {
  const days = Math.floor((new Date(time) - Date.now()) / 86400000);
  return `${day(time)}, ${days < 0 ? `${-days} days late` : `${days} days left`}`;
}

function state(text) {
  const kind = GOOD.has(text) ? "good" : BAD.has(text) ? "bad" : "wait";
  return element("span", text, { class: `state ${kind}` });
}

function certificateLink(digest) {
  const link = element("a", digest.slice(0, 12), { href: `/certificates/${digest}/page` });
  link.setAttribute("aria-label", `certificate ${digest.slice(0, 12)}`);
  return link;
}

function fill(body, labels, rows, nothing) {
  body.replaceChildren();
  if (!rows.length) {
    const row = element("tr");
    row.append(element("td", nothing, { colspan: labels.length }));
    body.append(row);
  }
  for (const cells of rows) {
    const row = element("tr");
    cells.forEach((cell, number) => {
      const place = element("td", "", { "data-label": labels[number] });
      const inner = element("span");
      inner.append(...(Array.isArray(cell) ? cell : [cell]));
      place.append(inner);
      row.append(place);
    });
    body.append(row);
  }
}

function outcome(request) {
  if (request.certificate) return [certificateLink(request.certificate)];
  const parts = [{ received: "waits for a worker", running: "is being carried out" }[request.state] || request.state];
  if (mayOperate && (request.state === "received" || request.state === "failed")) {
    const button = element("button", "Cancel", { type: "button", "aria-label": `Cancel request ${request.id}` });
    button.addEventListener("click", () => cancel(request.id));
    parts.push(" ", button);
  }
  return parts;
}

function showRequests() {
  const labels = ["Request", "State", "Model", "To forget", "Due", "Outcome"];
  const rows = lists.requests.rows.map((one) => [
    element("code", one.id), state(one.state), one.model,
    one.modalities.join(", ") + (one.of_person ? " of a person" : ""),
    OPEN.has(one.state) ? due(one.due) : day(one.due), outcome(one),
  ]);
  fill(byId("request-rows"), labels, rows, "No such requests.");
  byId("more-requests").hidden = !lists.requests.next;
}

function showCertificates() {
  const labels = ["Certificate", "State", "Model", "Deleted", "Guarantee", "Issued", "Why"];
  const rows = lists.certificates.rows.map((one) => [
    certificateLink(one.digest), state(one.state), one.model,
    one.modalities.join(", ") + (one.scope === "subjects" ? " of some subjects" : ""),
    one.guarantee + (one.epsilon === null ? "" : `, ε = ${one.epsilon}`), element("span", day(one.issued), { class: "date" }), one.reason,
  ]);
  fill(byId("certificate-rows"), labels, rows, "No certificate has been published here.");
  byId("more-certificates").hidden = lists.certificates.next === null;
}

function references(found) {
  const without = (ready) => Object.keys(found).filter((name) => (found[name] !== null) === ready).sort().join(", ");
  const parts = [];
  for (const [names, word, kind] of [[without(true), "ready", "good"], [without(false), "missing", "wait"]]) {
    if (!names) continue;
    if (parts.length) parts.push("; ");
    parts.push(element("span", word, { class: `state ${kind}` }), ` for ${names}`);
  }
  return parts.length ? parts : "none yet";
}

function showModels() {
  const labels = ["Model", "Takes", "Revoked", "Current release", "References"];
  const rows = models.map((one) => [
    one.name, one.takes.join(", ") || "not known yet", one.revoked.join(", ") || "nothing",
    one.current ? certificateLink(one.current.digest) : one.registered ? "registered, no certificate yet" : "none yet",
    references(one.references),
  ]);
  fill(byId("model-rows"), labels, rows, "No model is known yet.");
  const chosen = byId("model").value;
  byId("model").replaceChildren(...models.map((one) => element("option", one.name, { value: one.name })));
  if (models.some((one) => one.name === chosen)) byId("model").value = chosen;
  showModalities();
}

function showModalities() {
  const chosen = models.find((one) => one.name === byId("model").value);
  const checked = new Set([...document.querySelectorAll("[name=modality]:checked")].map((box) => box.value));
  const boxes = (chosen ? chosen.takes : []).map((name, number) => {
    const label = element("label", "", { for: `modality-${number}` });
    const box = element("input", "", { type: "checkbox", id: `modality-${number}`, name: "modality", value: name });
    box.checked = checked.has(name); // lists are loaded again while somebody chooses
    label.append(box, name);
    return label;
  });
  byId("modality-boxes").replaceChildren(...(boxes.length ? boxes : ["No model takes anything yet."]));
}

// One list is loaded at a time, so that an answer never replaces a newer one. Loading again keeps what is shown.
let last = Promise.resolve();
function inTurn(action) {
  const turn = last.then(action);
  last = turn.catch(() => {});
  return turn;
}
const size = (list, more) => (more ? PAGE : Math.min(Math.max(PAGE, list.rows.length), 1000));

const loadRequests = (more = false) => inTurn(async () => {
  const wanted = byId("request-state").value;
  const query = new URLSearchParams({ limit: size(lists.requests, more) });
  if (wanted === "open") query.set("open", "true");
  else if (wanted) query.set("state", wanted);
  if (more) query.set("after", lists.requests.next);
  const page = await ask(`/requests?${query}`);
  lists.requests = { rows: more ? [...lists.requests.rows, ...page.requests] : page.requests, next: page.next };
  showRequests();
});

const loadCertificates = (more = false) => inTurn(async () => {
  const query = new URLSearchParams({ limit: size(lists.certificates, more) });
  if (more) query.set("before", lists.certificates.next);
  const page = await ask(`/certificates?${query}`);
  const rows = more ? [...lists.certificates.rows, ...page.certificates] : page.certificates;
  lists.certificates = { rows, next: page.next };
  showCertificates();
});

async function loadModels() {
  models = (await ask("/models")).models;
  showModels();
}

async function loadHealth() {
  const place = byId("health");
  try {
    await ask("/healthz");
    const metrics = await ask("/metrics").catch(() => "");
    const up = !metrics || /^mbd_store_up 1/m.test(metrics);
    place.dataset.state = up ? "good" : "bad";
    place.textContent = up ? "The server works, and the store answers." : "The store does not answer: lists are as of before.";
  } catch {
    place.dataset.state = "bad";
    place.textContent = "The server does not work.";
  }
}

async function load() {
  const token = sessionStorage.getItem(STORAGE);
  const parts = [loadHealth(), loadModels(), loadCertificates()];
  if (token) parts.push(loadRequests());
  else fill(byId("request-rows"), ["Request"], [], "Give a token with the role read to see requests.");
  for (const result of await Promise.allSettled(parts)) if (result.status === "rejected") explain(result.reason);
}

async function submit(event) {
  event.preventDefault();
  const modalities = [...document.querySelectorAll("[name=modality]:checked")].map((box) => box.value);
  if (!modalities.length) {
    say("Choose what the model has to forget.", "bad");
    return;
  }
  const body = {
    model: byId("model").value, modalities, reason: byId("reason").value, requester: byId("requester").value,
  };
  try {
    const key = { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() };
    const made = await ask("/requests", { method: "POST", headers: key, body: JSON.stringify(body) });
    byId("submit-form").reset();
    say(`Request ${made.id} is entered. It is due on ${day(made.due)}.`, "good");
    byId("message").scrollIntoView({ block: "nearest" });
    await loadRequests().catch(() => {});
  } catch (error) {
    explain(error);
  }
}

async function cancel(id) {
  try {
    await ask(`/requests/${id}/cancel`, { method: "POST" });
    say(`Request ${id} is cancelled.`, "good");
  } catch (error) {
    if (error.status === 403) mayOperate = false;
    explain(error);
  }
  await loadRequests().catch(() => {});
}

// EventSource cannot send a token, so the stream is read here.
async function follow() {
  if (stream) stream.abort();
  const mine = (stream = new AbortController());
  while (!mine.signal.aborted && sessionStorage.getItem(STORAGE)) {
    try {
      const response = await fetch("/events", { headers: headers(), signal: mine.signal });
      if (!response.ok) return; // this token may not follow events
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        if (part.value.includes("data:")) await load();
      }
    } catch {
      if (mine.signal.aborted) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
}

function guarded(action) {
  return () => action().catch(explain);
}

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(STORAGE, byId("token").value.trim());
  byId("token").value = "";
  mayOperate = true;
  say("", "");
  load();
  follow();
});
byId("sign-out").addEventListener("click", () => {
  sessionStorage.removeItem(STORAGE);
  if (stream) stream.abort();
  say("The token is forgotten.", "good");
  load();
});
byId("submit-form").addEventListener("submit", submit);
byId("request-filter").addEventListener("submit", (event) => event.preventDefault());
byId("request-state").addEventListener("change", () => {
  lists.requests = { rows: [], next: null };
  loadRequests().catch(explain);
});
byId("model").addEventListener("change", showModalities);
byId("more-requests").addEventListener("click", guarded(() => loadRequests(true)));
byId("more-certificates").addEventListener("click", guarded(() => loadCertificates(true)));
load();
follow();
setInterval(load, 60000);
