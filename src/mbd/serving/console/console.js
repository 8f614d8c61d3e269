// The console: who is signed in, which page the address means, and when it is loaded again.
import { h, link, tag } from "./dom.js";
import * as pages from "./pages.js";

const byId = (id) => document.getElementById(id);
const STORAGE = "mbd-token";
const EVERY = 60000;
const ROUTES = [
  [/^\/(?:console\/?)?$/, pages.overview],
  [/^\/console\/requests$/, pages.requests],
  [/^\/console\/requests\/([^/]+)$/, pages.request],
  [/^\/console\/models$/, pages.models],
  [/^\/console\/models\/([^/]+)$/, pages.model],
  [/^\/console\/certificates$/, pages.certificates],
  [/^\/console\/certificates\/([^/]+)$/, pages.certificate],
  [/^\/console\/new$/, pages.newRequest],
  [/^\/console\/sign-in$/, pages.signIn],
];

class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || "");
    Object.assign(this, { status, problem });
  }
}

const token = () => sessionStorage.getItem(STORAGE);
const headers = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...headers(), ...options.headers } });
  } catch {
    throw new Refused(0, {});
  }
  const kind = response.headers.get("content-type") || "";
  const content = kind.includes("json") ? await response.json() : await response.text();
  if (!response.ok) throw new Refused(response.status, typeof content === "string" ? {} : content);
  return content;
}

const post = (path, body, more = {}) => ask(path, {
  method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...more },
});

/** Say in words for people why something was refused. */
function explain({ status, problem = {}, message }) {
  const detail = message ? `${message[0].toUpperCase()}${message.slice(1)}.` : "";
  const there = problem.known ? ` There are: ${problem.known.join(", ")}.` : "";
  const reference = status >= 500 && problem.request_id ? ` The operator finds it in the log as ${problem.request_id}.` : "";
  const words = {
    0: "The server does not answer. Check the connection, and try again.",
    401: token() ? "This token is not valid, or not any more. Sign in with another one." : "Sign in to see this.",
    403: `Your token does not allow this: ${message}. Ask the operator of this server for one that does.`,
    404: `${detail} The address may be mistyped.${there}`,
    422: `${detail}${there}${problem.hint ? ` Hint: ${problem.hint}.` : ""}`,
    429: "These were too many requests in a short time. Wait a minute, and try again.",
    503: `The store cannot be read at the moment. Nothing was lost; try again soon.${reference}`,
    507: `The store takes nothing new: it is full, or read-only. Nothing was entered.${reference}`,
  };
  if (status === undefined) return `The console failed: ${message}`;
  return words[status] || (status >= 500 ? `The server failed.${reference}` : detail);
}

function announce(text, kind = "good") {
  byId("message").replaceChildren(h("p", { class: `notice ${kind}` }, text));
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => byId("message").replaceChildren(), 8000);
}

const client = {
  session: null,
  verdicts: {},
  query: new URLSearchParams(),
  shown: 0,
  get: (path) => ask(path),
  explain,
  may: (role) => Boolean(client.session && client.session.roles.includes(role)),
  filter(query) {
    const text = query.toString();
    history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
    client.shown = 0;
    refresh();
  },
  more(shown) {
    client.shown = shown;
    refresh();
  },
  async submit(body) {
    const made = await post("/requests", body, { "Idempotency-Key": crypto.randomUUID() });
    announce(`The request is entered. It is due on ${made.due.slice(0, 10)}.`);
    go(`/console/requests/${made.id}`);
  },
  async cancel(request) {
    if (!confirm("Cancel this request? Nothing is deleted then.")) return;
    try {
      await post(`/requests/${request.id}/cancel`, {});
      announce("The request is cancelled.");
    } catch (error) {
      announce(explain(error), "bad");
    }
    refresh();
  },
  async signIn(given) {
    const before = token();
    sessionStorage.setItem(STORAGE, given);
    try {
      await openSession();
    } catch (error) {
      const words = explain(error);
      if (before) sessionStorage.setItem(STORAGE, before);
      else sessionStorage.removeItem(STORAGE);
      throw error.status === 401 ? new Error(words) : error;
    }
    follow();
    go(location.pathname.endsWith("/sign-in") ? "/console/" : location.pathname + location.search);
  },
  go: (path) => go(path),
  /** Open the page of a certificate; where the store is not public, a link could not send the token, so it is saved. */
  async openPage(certificate) {
    try {
      const open = await fetch(certificate.page).then((answer) => answer.ok, () => false);
      if (open) return void location.assign(certificate.page);
      const page = await ask(certificate.page);
      const address = URL.createObjectURL(new Blob([page], { type: "text/html" }));
      h("a", { href: address, download: `certificate-${certificate.digest.slice(0, 12)}.html` }).click();
      URL.revokeObjectURL(address);
      return announce("The page is saved: open it from your downloads.");
    } catch (error) {
      return announce(explain(error), "bad");
    }
  },
};

async function openSession() {
  client.session = token() ? await ask("/session") : null;
  showSession();
}

function showSession() {
  const { session } = client;
  byId("session").replaceChildren(...(session
    ? [h("span", { class: "who" }, session.name, ...session.roles.flatMap((role) => [" ", tag(role)])),
      h("button", { type: "button", onclick: signOut }, "Sign out")]
    : [h("a", { class: "button", href: "/console/sign-in" }, "Sign in")]));
}

function signOut() {
  sessionStorage.removeItem(STORAGE);
  client.session = null;
  showSession();
  follow();
  announce("You are signed out.");
  go("/console/");
}

let turn = 0;

/** Load the page that the address means; `refreshed`: the same page again, which keeps focus and open details. */
async function show(refreshed = false) {
  const mine = ++turn;
  const path = location.pathname;
  client.query = new URLSearchParams(location.search);
  if (!refreshed) client.shown = 0;
  const [pattern, load] = ROUTES.find(([each]) => each.test(path)) || [/^/, null];
  let made;
  try {
    if (!load) throw new Refused(404, { detail: "there is no such page" });
    made = await load(client, ...(pattern.exec(path).slice(1).map(decodeURIComponent)));
  } catch (error) {
    if (refreshed && error.status === 0) return; // what is shown stays, and the footer says that the server is away
    made = error.status === 401 ? await pages.signIn(client, explain(error))
      : { title: "Not possible", content: failure(error), soon: error.status === 503 ? 2000 : 0 };
  }
  if (mine !== turn) return;
  document.title = `${made.title} · Missing-by-Design`;
  for (const each of document.querySelectorAll(".bar nav a")) {
    const here = each.getAttribute("href");
    const current = here === "/console/" ? ROUTES[0][0].test(path) : path.startsWith(here);
    if (current) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const main = byId("main");
  main.dataset.form = made.form ? "yes" : "";
  const kept = refreshed ? focused(main) : null;
  const open = refreshed && main.querySelector("details[open]") !== null;
  main.replaceChildren(made.content);
  main.dataset.page = path;
  if (open) main.querySelector("details")?.setAttribute("open", "");
  if (kept) kept();
  clearTimeout(show.timer);
  if (made.soon) show.timer = setTimeout(again, made.soon);
  if (!refreshed && turn > 1) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

const refresh = () => show(true);

/** Return what gives focus back after the page was made again. */
function focused(main) {
  const { activeElement: active } = document;
  if (!main.contains(active) || active === main) return null;
  const [key, value] = active.name ? ["name", active.name] : ["href", active.getAttribute("href")];
  const at = active.selectionStart;
  return () => {
    const again = value && main.querySelector(`[${key}="${CSS.escape(value)}"]`);
    if (!again) return;
    again.focus({ preventScroll: true });
    if (typeof at === "number" && again.setSelectionRange) again.setSelectionRange(at, at);
  };
}

function failure(error) {
  return h("div", {}, h("h1", {}, error.status === 404 ? "Not found" : "Not possible"),
    h("p", { class: "notice bad", role: "alert" }, explain(error)),
    h("p", {}, link("/console/", "Back to the overview")));
}

function go(path) {
  history.pushState(null, "", path);
  show();
}

async function loadHealth() {
  const place = byId("health");
  const say = (kind, words) => {
    place.className = kind;
    if (place.textContent !== words) place.textContent = words;
  };
  try {
    await ask("/healthz");
    const metrics = await ask("/metrics").catch(() => "");
    const entries = /^mbd_log_entries (\d+)/m.exec(metrics);
    if (metrics && !/^mbd_store_up 1/m.test(metrics)) say("bad", "The store does not answer: this page is as of before.");
    else say("good", `The server works, and the store answers.${entries ? ` Entries in its log: ${entries[1]}.` : ""}`);
  } catch {
    say("bad", "The server does not answer: this page is as of before.");
  }
}

async function again() {
  if (document.hidden) return;
  loadHealth();
  if (!byId("main").dataset.form) await refresh();
}

let stream = null;

// EventSource cannot send a token, so the stream is read here.
async function follow() {
  if (stream) stream.abort();
  const mine = (stream = new AbortController());
  while (!mine.signal.aborted && client.may("read")) {
    try {
      const response = await fetch("/events", { headers: headers(), signal: mine.signal });
      if (!response.ok) return;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        if (part.value.includes("data:")) await again();
      }
    } catch {
      if (mine.signal.aborted) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const { origin, pathname, search, hash } = anchor;
  if (hash || origin !== location.origin || !ROUTES.some(([pattern]) => pattern.test(pathname))) return;
  event.preventDefault();
  go(pathname + search);
});
addEventListener("popstate", () => show());

client.verdicts = await ask("/assets/verdicts.json").catch(() => ({}));
await openSession().catch((error) => {
  if (error.status === 401) sessionStorage.removeItem(STORAGE);
  announce(explain(error), "bad");
  showSession();
});
await Promise.all([show(), loadHealth()]);
follow();
setInterval(again, EVERY);
