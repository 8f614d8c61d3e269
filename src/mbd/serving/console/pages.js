// The pages: each loads what it needs and returns its content. `client` is what console.js provides.
import { dayChart, shares } from "./chart.js";
import {
  count, day, distance, entry, facts, h, link, list, page, short, stateChip, table, tag, tags, time, verdictChip, verdictKind,
} from "./dom.js";

const OPEN = new Set(["received", "running", "failed"]);
const PAGE = 25;

const requestPath = (id) => `/console/requests/${id}`;
const modelPath = (name) => `/console/models/${encodeURIComponent(name)}`;
const certificatePath = (digest) => `/console/certificates/${digest}`;
const isLate = (at) => new Date(at) < Date.now();

const wish = (request) => `Delete ${list(request.modalities)}${request.of_person ? " of one person" : ""}`;
const deleted = (certificate) =>
  list(certificate.modalities) + (certificate.persons ? ` of ${count(certificate.persons, "person")}` : "");
const modelLink = (name) => link(modelPath(name), name);
const certificateLink = (digest) => link(certificatePath(digest), short(digest));

function deadline(request) {
  if (!OPEN.has(request.state)) return day(request.due);
  return h("span", { class: isLate(request.due) ? "late" : "" }, day(request.due), " ", h("small", {}, distance(request.due)));
}

function requestTable(requests, nothing) {
  const rows = requests.map((each) => [
    h("a", { href: requestPath(each.id), class: "whole" }, each.requester || each.id), wish(each),
    modelLink(each.model), stateChip(each.state), deadline(each),
  ]);
  return table("Nearest deadline first", ["Case", "What", "Model", "State", "Due"], rows, nothing);
}

function certificateTable(client, certificates, nothing) {
  const rows = certificates.map((each) => [
    certificateLink(each.digest), verdictChip(client.verdicts, each.verdict), modelLink(each.model), deleted(each), each.guarantee, day(each.issued), each.reason,
  ]);
  const columns = ["Number", "Verdict", "Model", "Deleted", "Guarantee", "Issued", "By the log"];
  return table("Newest first", columns, rows, nothing);
}

const unknownInputs = (model) => (model.certificates ? "nothing: no release is in force" : "not known yet");

function modelCard(client, model) {
  const current = model.current
    ? [link(certificatePath(model.current.digest), "certified ", day(model.current.issued)), " ", verdictChip(client.verdicts, model.current.verdict)]
    : model.registered ? ["registered ", day(model.registered.issued)] : h("span", { class: "late" }, "no release in force");
  return h("li", { class: "card" }, h("h3", {}, modelLink(model.name)), h("dl", {}, facts([
    ["Takes", tags(model.takes, "", unknownInputs(model))],
    ["Revoked", tags(model.revoked, "revoked", "nothing")],
    ["Release", current],
  ])));
}

const SIGN_IN = () => h("p", { class: "notice" }, link("/console/sign-in", "Sign in"), " with the role ", h("code", {}, "read"), " to see requests.");

const openButton = (client, certificate) =>
  h("button", { type: "button", class: "primary", onclick: () => client.openPage(certificate) }, "Open the certificate");

function attention(overview) {
  const parts = [];
  const say = (kind, ...words) => parts.push(h("p", { class: `notice ${kind}` }, ...words));
  if (overview.problem) say("bad", "The state of certificates cannot be known: ", overview.problem, ".");
  const numbers = overview.requests;
  if (numbers && numbers.states.failed) say("wait", link("/console/requests?state=failed", count(numbers.states.failed, "request")), " failed and will be tried again.");
  const late = overview.due.filter((each) => isLate(each.reaudit_by));
  if (late.length) say("wait", count(late.length, "certificate"), " past the date of the next audit.");
  return parts;
}

function tile(number, words, kind, href, note = "") {
  return h("a", { class: `tile ${kind}`, href }, h("strong", {}, number), h("span", {}, words), note ? h("small", {}, note) : null);
}

function hours(value) {
  if (value === null) return "";
  if (value < 1) return `half of them within ${count(Math.max(1, Math.ceil(value * 60)), "minute")}`;
  return `half of them within ${value < 48 ? count(Math.ceil(value), "hour") : count(Math.ceil(value / 24), "day")}`;
}

function tiles(overview) {
  const numbers = overview.requests;
  const inForce = overview.certificates.verified || 0;
  const all = Object.values(overview.certificates).reduce((total, each) => total + each, 0);
  const force = tile(inForce, "certificates in force", "", "/console/certificates?verdict=verified", `of ${all}`);
  if (!numbers) return [];
  const open = [...OPEN].reduce((total, state) => total + (numbers.states[state] || 0), 0);
  const done = numbers.days.reduce((total, each) => total + each.certified, 0);
  return [
    tile(open, "open requests", "", "/console/requests", numbers.due_soon ? `${numbers.due_soon} due within a week` : ""),
    tile(numbers.overdue, "overdue", numbers.overdue ? "bad" : "good", "/console/requests"),
    tile(done, "certified in 90 days", "", "/console/requests?state=certified", hours(numbers.median_hours)), force,
  ];
}

function verdictList(client, numbers) {
  const known = Object.keys(client.verdicts).filter((verdict) => numbers[verdict]);
  if (!known.length) return h("p", { class: "quiet" }, "No certificate has been published here.");
  return [shares(known.map((verdict) => [verdictKind(client.verdicts, verdict), numbers[verdict]])),
    h("ul", { class: "counts" }, known.map((verdict) => h("li", {},
      link(`/console/certificates?verdict=${encodeURIComponent(verdict)}`, verdictChip(client.verdicts, verdict)), h("strong", {}, numbers[verdict]))))];
}

const AUDITS = { passed: ["good", "passed"], refuted: ["bad", "refused by the gate"], none: ["quiet", "does not count"] };

export async function overview(client) {
  const [numbers, models] = await Promise.all([client.get("/overview"), client.get("/models")]);
  const open = numbers.requests ? (await client.get("/requests?open=true&limit=6")).requests : [];
  const audits = numbers.audits.map((each) => {
    const [kind, words] = AUDITS[each.effect] || AUDITS.none;
    return [day(each.issued), certificateLink(each.about), modelLink(each.model), tag(words, kind)];
  });
  const due = numbers.due.map((each) => [
    h("span", { class: isLate(each.reaudit_by) ? "late" : "" }, day(each.reaudit_by)),
    certificateLink(each.digest), modelLink(each.model), deleted(each)]);
  const made = page("overview", {
    attention: attention(numbers),
    tiles: tiles(numbers),
    all: numbers.requests ? "All" : [],
    open: numbers.requests ? requestTable(open, "No request is open.") : SIGN_IN(),
    verdicts: verdictList(client, numbers.certificates),
    days: numbers.requests ? dayChart(numbers.requests.days) : [],
    legend: numbers.requests ? ["open", "overdue", "certified"].map((name) => h("span", { class: `key ${name}` }, name)) : [],
    models: models.models.slice(0, 6).map((model) => modelCard(client, model)),
    audits: table("The newest first", ["Day", "Certificate", "Model", "Outcome"], audits, "No model has been audited again yet."),
    due: table("The earliest first", ["By", "Certificate", "Model", "Deleted"], due, "No certificate is in force."),
  });
  if (!numbers.requests) made.querySelector('[data-slot="days-card"]').remove();
  return { title: "Overview", content: made };
}

/** Connect the fields of a filter with the address, and return what is chosen. */
function filters(made, client, models = []) {
  const form = made.querySelector("form.filters");
  const chosen = Object.fromEntries(client.query);
  if (form.elements.model) form.elements.model.append(...models.map((name) => h("option", { value: name }, name)));
  for (const field of form.elements) if (chosen[field.name]) field.value = chosen[field.name];
  const apply = () => client.filter(new URLSearchParams([...new FormData(form)].filter(([, value]) => value)));
  form.addEventListener("change", apply);
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  return chosen;
}

/** Put a list into its page, and a button below it while there is more. */
function fill(made, client, content, next) {
  const shown = client.shown || PAGE;
  const more = h("p", {}, h("button", { type: "button", onclick: () => client.more(shown + PAGE) }, "Show more"));
  made.querySelector('[data-slot="list"]').append(content, ...(next && shown < 1000 ? [more] : []));
}

export async function requests(client) {
  if (client.may("submit") && !client.may("read")) return oneRequest(client);
  const { models } = await client.get("/models");
  const made = page("requests");
  const chosen = filters(made, client, models.map((each) => each.name));
  const query = new URLSearchParams({ limit: client.shown || PAGE });
  if (made.querySelector("[name=state]").value === "open") query.set("open", "true");
  else if (chosen.state !== "all") query.set("state", chosen.state);
  for (const name of ["model", "text"]) if (chosen[name]) query.set(name, chosen[name].trim());
  const found = await client.get(`/requests?${query}`);
  const nothing = Object.keys(chosen).length ? "No request matches." : "No request is open.";
  fill(made, client, requestTable(found.requests, nothing), found.next);
  return { title: "Requests", content: made };
}

/** Return what somebody sees who may not list requests: a field for the id of one. */
function oneRequest(client) {
  const made = page("one-request");
  const form = made.querySelector("form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    client.go(requestPath(form.elements.id.value));
  });
  return { title: "Requests", content: made, form: true };
}

const STEPS = {
  received: ["Received", "wait"], running: ["Taken by a worker", "wait"], certified: ["Certified", "good"],
  refused: ["Refused", "bad"], failed: ["Failed", "bad"], cancelled: ["Cancelled", "quiet"],
};
const ABOUT = {
  revocation: ["Certificate withdrawn", "bad"], supersession: ["Replaced by a later certificate", "wait"],
  purge: ["Old copies purged", "good"], reinstatement: ["Reinstated", "bad"], "nothing-held": ["Nothing held of a person", "good"],
};

function statementEntry(statement) {
  const links = [h("a", { href: `/store/certificates/${statement.digest}/certificate.json` }, "signed statement")];
  const base = { at: statement.issued, note: statement.reason, links };
  if (statement.kind === "reaudit") {
    const [kind, words] = AUDITS[statement.effect] || AUDITS.none;
    const next = statement.effect === "passed" ? ["next audit by ", day(statement.reaudit_by)] : statement.reason;
    return entry({ ...base, title: `Audited again: ${words}`, kind, note: next });
  }
  const [title, kind] = ABOUT[statement.kind] || [statement.kind, "quiet"];
  if (statement.kind === "supersession") {
    return entry({ ...base, title, kind, note: "", links: [certificateLink(statement.digest)] });
  }
  if (statement.kind === "reinstatement") return entry({ ...base, title: `${title}: ${list(statement.modalities)}`, kind });
  return entry({ ...base, title, kind });
}

const PLAN = ["deleted", "evaluated", "attacked"];
const STAGES = { deleted: "Deleted from the model", evaluated: "Evaluated", attacked: "Attacked" };

/** Return the history of a request as a timeline, with what is still to come and what was said of its certificate. */
function requestTimeline(request, certificate) {
  const items = request.history.map(({ at, state, note }) => {
    if (STAGES[note]) return entry({ at, title: STAGES[note], kind: "wait" });
    const [title, kind] = STEPS[state];
    const links = state === "certified" && certificate
      ? [link(certificatePath(certificate.digest), "certificate ", short(certificate.digest))] : [];
    return entry({ at, title, kind, note, links });
  });
  if (OPEN.has(request.state)) {
    const started = request.history.map((each) => each.note).lastIndexOf("deleted");
    const done = request.state === "running" && started >= 0 ? request.history.slice(started).map((each) => each.note) : [];
    if (request.state !== "running") items.push(entry({ title: STEPS.running[0] }));
    const plan = PLAN.filter((stage) => !done.includes(stage) && !(request.of_person && stage === "attacked"));
    items.push(...plan.map((stage) => entry({ title: STAGES[stage] })), entry({ title: STEPS.certified[0] }));
  }
  if (certificate) {
    items.push(...certificate.statements.map(statementEntry));
    if (!certificate.statements.some((each) => each.kind === "purge")) {
      items.push(entry({ title: "Old copies purged", note: "nothing is claimed about copies of the old model" }));
    }
  }
  return items;
}

export async function request(client, id) {
  const found = await client.get(`/requests/${encodeURIComponent(id)}`);
  const certificate = found.certificate ? await client.get(`/certificates/${found.certificate}`).catch(() => null) : null;
  const cancel = OPEN.has(found.state) && found.state !== "running" && client.may("operate")
    ? h("button", { type: "button", onclick: () => client.cancel(found) }, "Cancel the request") : null;
  const statement = found.certificate && !certificate
    ? link(`/store/certificates/${found.certificate}/certificate.json`, "signed statement ", short(found.certificate)) : null;
  return {
    title: wish(found),
    soon: found.state === "running" ? 2000 : 0, // its stages are no events
    content: page("request", {
      title: wish(found),
      actions: [cancel, certificate ? openButton(client, certificate) : null],
      lead: [stateChip(found.state), " ", OPEN.has(found.state)
        ? h("span", { class: isLate(found.due) ? "late" : "" }, "due ", day(found.due), `, ${distance(found.due)}`)
        : h("span", { class: "quiet" }, "on ", day(found.history[found.history.length - 1].at), ", due ", day(found.due))],
      timeline: found.of_person && !client.may("read") && !client.may("operate")
        ? h("li", { class: "wait" }, h("h3", {}, "Received"), h("p", { class: "note" }, "What becomes of a person’s request is shown to the roles read and operate."))
        : requestTimeline(found, certificate),
      facts: facts([
        ["Model", modelLink(found.model)],
        ["To delete", list(found.modalities)],
        ["Whose", found.of_person ? "one person’s recordings" : "everybody’s recordings"],
        ["Case number", found.requester],
        ["Reason", found.reason],
        ["Certificate", certificate ? certificateLink(certificate.digest) : statement],
        ["Id", h("code", {}, found.id)],
      ]),
    }),
  };
}

export async function models(client) {
  const found = (await client.get("/models")).models;
  const made = page("models");
  const { text = "" } = filters(made, client);
  const shown = found.filter((each) => each.name.toLowerCase().includes(text.toLowerCase()));
  made.querySelector('[data-slot="models"]').append(...(shown.length
    ? shown.map((model) => modelCard(client, model)) : [h("li", { class: "quiet" }, "No model matches.")]));
  return { title: "Models", content: made };
}

function releaseEntry(client, release) {
  const certificate = release.certificate;
  const title = certificate ? `Certified: ${deleted(certificate)} deleted` : "Registered";
  const marks = [certificate ? verdictChip(client.verdicts, certificate.verdict) : null, release.current ? tag("current", "good") : null,
    release.promoted ? null : tag("not promoted")].filter(Boolean).flatMap((mark) => [" ", mark]);
  return entry({
    at: release.issued, title: [title, ...marks], kind: release.current ? "good" : "quiet",
    note: ["takes ", list(release.takes), ", weights ", short(release.weights)],
    links: [releaseLink({ kind: certificate ? "certificate" : "registration", digest: release.digest })],
  });
}

function releaseLink({ kind, digest }) {
  return kind === "certificate" ? link(certificatePath(digest), "certificate ", short(digest))
    : h("a", { href: `/store/certificates/${digest}/certificate.json` }, "registration ", short(digest));
}

function references(found) {
  const names = (ready) => Object.keys(found).filter((name) => (found[name] !== null) === ready).sort();
  const parts = [["ready", true, "good"], ["missing", false, "wait"]].filter(([, ready]) => names(ready).length);
  return parts.flatMap(([words, ready, kind], number) => [number ? "; " : "", tag(words, kind), ` for ${list(names(ready))}`]);
}

export async function model(client, name) {
  const found = await client.get(`/models/${encodeURIComponent(name)}`);
  const about = found.statements.filter((each) => each.kind !== "supersession");
  const timeline = [
    ...found.releases.map((release) => [release.index, releaseEntry(client, release)]),
    ...about.map((statement) => [statement.index, statementEntry(statement)]),
  ].sort(([first], [second]) => second - first).map(([, item]) => item);
  const persons = found.releases.reduce((total, each) => total + (each.certificate ? each.certificate.persons : 0), 0);
  const from = `model=${encodeURIComponent(name)}`;
  return {
    title: name,
    content: page("model", {
      title: name,
      actions: [h("a", { class: "button", href: `/console/requests?state=all&${from}` }, "Its requests"),
        h("a", { class: "button primary", href: `/console/new?${from}` }, "New request")],
      timeline: timeline.length ? timeline : h("li", { class: "quiet" }, "Nothing has been released under this name yet."),
      facts: facts([
        ["Takes", tags(found.takes, "", unknownInputs(found))],
        ["Revoked", tags(found.revoked, "revoked", "nothing")],
        ["Persons deleted", persons ? persons.toLocaleString("en") : "none"],
        ["Release", found.current ? [certificateLink(found.current.digest), " ",
          verdictChip(client.verdicts, found.current.verdict)] : found.registered ? "registered, not certified" : h("span", { class: "late" }, "none in force")],
        ["References", Object.keys(found.references).length ? references(found.references) : ""],
      ]),
    }),
  };
}

export async function certificates(client) {
  const { models: known } = await client.get("/models");
  const made = page("certificates");
  made.querySelector("[name=verdict]").append(...Object.keys(client.verdicts).map((each) => h("option", { value: each }, each.toUpperCase())));
  const chosen = filters(made, client, known.map((each) => each.name));
  const query = new URLSearchParams({ limit: client.shown || PAGE });
  for (const name of ["verdict", "text"]) if (chosen[name]) query.set(name, chosen[name].trim().toLowerCase());
  if (chosen.model) query.set("model", chosen.model);
  const found = await client.get(`/certificates?${query}`);
  const nothing = Object.keys(chosen).length ? "No certificate matches." : "No certificate has been published here.";
  fill(made, client, certificateTable(client, found.certificates, nothing), found.next);
  return { title: "Certificates", content: made };
}

/** Return the page of a certificate of which only the verdict is known. */
function unreadable(client, digest, { message, problem }) {
  const words = client.verdicts[problem.verdict];
  const made = page("certificate", {
    title: ["Certificate ", short(digest)],
    lead: [verdictChip(client.verdicts, problem.verdict), " ", words.sentence, " ", h("span", { class: "quiet" }, `By the log: ${message}. `), words.to_do],
  });
  for (const part of made.querySelectorAll(".columns, .card")) part.remove();
  return { title: `Certificate ${digest.slice(0, 12)}`, content: made };
}

export async function certificate(client, digest) {
  let found;
  try {
    found = await client.get(`/certificates/${encodeURIComponent(digest)}`);
  } catch (error) {
    if (error.problem?.verdict) return unreadable(client, digest, error);
    throw error;
  }
  const words = client.verdicts[found.verdict];
  const next = found.successor;
  const issued = entry({
    at: found.issued, title: "Issued", kind: "good",
    links: [h("a", { href: `/store/certificates/${digest}/certificate.json` }, "signed certificate")],
  });
  return {
    title: `Certificate ${digest.slice(0, 12)}`,
    content: page("certificate", {
      title: ["Certificate ", short(digest)],
      actions: openButton(client, found),
      lead: [verdictChip(client.verdicts, found.verdict), " ", words.sentence, " ",
        h("span", { class: "quiet" }, `By the log: ${found.reason}. `), found.verdict === "verified" ? "" : words.to_do],
      timeline: [issued, ...found.statements.map(statementEntry)],
      facts: facts([
        ["Deleted", deleted(found)],
        ["Model", modelLink(found.model)],
        ["It takes", tags(found.inputs, "", "nothing")],
        ["Guarantee", found.guarantee_words],
        ["Issuer", [found.issuer.name || "not stated", found.issuer.contact ? ` (${found.issuer.contact})` : ""]],
        ["Old copies", found.copies],
        ["Next audit", words.ended ? `not due: the certificate was ${found.verdict}` : day(found.reaudit_by)],
        ["Replaces", found.supersedes ? certificateLink(found.supersedes) : ""],
        [next && next.current ? "Current release" : "Last release, withdrawn", next ? releaseLink(next) : ""],
        ["Weights", short(found.weights)],
        ["Number", h("code", {}, digest)],
      ]),
      command: `mbd verify ${location.origin}/store/certificates/${digest} --trust trust.json`,
    }),
  };
}

export async function newRequest(client) {
  const found = (await client.get("/models")).models;
  const persons = client.session ? client.session.persons : [];
  const made = page("new");
  const form = made.querySelector("form");
  const { elements } = form;
  const slot = (name) => form.querySelector(`[data-slot="${name}"]`);
  const say = (text) => { slot("problem").textContent = text; slot("problem").hidden = !text; };
  const ofPerson = () => elements.whose.value === "person";

  function showModels() {
    const names = found.map((each) => each.name).filter((name) => !ofPerson() || persons.includes(name));
    const chosen = elements.model.value || client.query.get("model");
    elements.model.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    if (names.includes(chosen)) elements.model.value = chosen;
    const none = ofPerson() && !names.length;
    slot("persons").hidden = !none;
    slot("persons").textContent = "This server does not take persons’ requests: they need the data and a key that it does not " +
      "hold. Enter this one where the worker is, with: mbd request submit --subject ID";
    form.querySelector("[type=submit]").disabled = none;
    slot("person").hidden = !ofPerson();
    slot("modality-legend").textContent = ofPerson() ? "In which modality?" : "What must the model forget?";
    showModalities();
  }

  function showModalities() {
    const model = found.find((each) => each.name === elements.model.value);
    const type = ofPerson() ? "radio" : "checkbox";
    const boxes = (model ? model.takes : []).map((name) => h("label", { class: "box" },
      h("input", { type, name: "modality", value: name }), name));
    slot("modalities").replaceChildren(...(boxes.length ? boxes : ["This model takes nothing yet."]));
  }

  elements.whose.value = persons.length ? "person" : "all";
  form.addEventListener("change", (event) => {
    if (event.target.name === "whose") showModels();
    if (event.target.name === "model") showModalities();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    say("");
    const modalities = new FormData(form).getAll("modality");
    if (!modalities.length) return say("Choose what has to be deleted.");
    if (ofPerson() && !elements.subject.value.trim()) return say("Give the id of the person, as it is in the data.");
    const body = { model: elements.model.value, modalities, reason: elements.reason.value, requester: elements.requester.value };
    if (ofPerson()) body.subject = elements.subject.value.trim();
    return client.submit(body).catch((error) => say(client.explain(error)));
  });
  showModels();
  if (!client.may("submit")) {
    form.replaceWith(h("p", { class: "notice" }, link("/console/sign-in", "Sign in"), " with a token that has the role ",
      h("code", {}, "submit"), " to enter a request."));
  }
  return { title: "New request", content: made, form: true };
}

export async function signIn(client, reason = "") {
  const made = page("sign-in");
  const form = made.querySelector("form");
  const problem = form.querySelector('[data-slot="problem"]');
  const say = (kind, words) => Object.assign(problem, { className: `notice ${kind}`, textContent: words, hidden: !words });
  say("", reason);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    say("", "");
    try {
      await client.signIn(form.elements.token.value.trim());
    } catch (error) {
      say("bad", client.explain(error));
    }
  });
  return { title: "Sign in", content: made, form: true };
}
