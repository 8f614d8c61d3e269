// Every check that a browser can make, each with its outcome, reason and verdict, and the verdict that they lead to.
// VERDICTS, the worst last, is the table of mbd.formats.verdict; the page puts it before this script.

const [CERTIFICATE, PROOF, TRUST, WEIGHTS] = ["certificate.json", "proof.json", "trust.json", "model.safetensors"];

const [VERIFIED, NOT_VERIFIED, FORGED] = ["verified", "not verified", "forged or damaged"];
const passed = (name, reason) => ({ name, outcome: "passed", reason, verdict: VERIFIED });
const failed = (name, reason, verdict = FORGED) => ({ name, outcome: "failed", reason, verdict });
const unknown = (name, reason, required = true) => ({ name, outcome: "not checkable", reason, verdict: required ? NOT_VERIFIED : VERIFIED });

/** Checks that only the store can answer, which a page without a network never makes. */
const STANDING = ["log consistency", "not withdrawn", "not replaced"];

const missing = (file) => `${file} was not given`;

/** Check the given files, by name, against the certificate that the page is about. */
async function verifyFiles(files, expected, now, progress) {
  const bytes = async (name) => new Uint8Array(await files.get(name).arrayBuffer());
  const envelope = files.has(CERTIFICATE) ? await bytes(CERTIFICATE) : null;
  const read = await attempt(() => envelope && readEnvelope(envelope));
  const trust = await attempt(async () => (files.has(TRUST) ? readTrust(await bytes(TRUST)) : null));
  const proof = await attempt(async () => (files.has(PROOF) ? readProof(await bytes(PROOF)) : null));
  const lacking = await cannotVerify();
  const log = await logChecks(envelope, proof, trust.value, lacking);
  const found = read.value;
  return [
    ...formChecks(read),
    await samePage(envelope, expected),
    trustCheck(trust),
    ...(await signatureChecks(found, trust.value, log.logged, now, lacking)),
    ...log.checks,
    ...(await digestChecks(files, found, progress)),
    dateCheck(found, now),
    ...STANDING.map((name) => unknown(name, "only the store it was published in knows: mbd verify --store URL")),
    unknown("structure, budget and gate", "computed again by mbd verify, not in a browser", false),
  ];
}

/** Return what a reader gives, or why it refuses. */
async function attempt(read) {
  try {
    return { value: await read(), reason: null };
  } catch (error) {
    const reason = error instanceof Refused ? error.message : `it cannot be read (${error.name})`;
    return { value: null, reason, foreign: error instanceof UnknownLogKey };
  }
}

function formChecks({ value, reason }) {
  const [schema, form] = ["certificate can be read", "canonical form"];
  if (reason) return [failed(schema, reason), unknown(form, "the certificate cannot be read")];
  if (!value) return [unknown(schema, missing(CERTIFICATE)), unknown(form, missing(CERTIFICATE))];
  const written = value.form ? failed(form, value.form) : passed(form, "envelope and content are canonical");
  return [passed(schema, "a signed statement of a modality deletion"), written];
}

async function samePage(envelope, expected) {
  const name = "certificate of this page";
  if (!envelope) return unknown(name, missing(CERTIFICATE));
  const digest = toHex(await sha256(envelope));
  if (digest !== expected) return failed(name, `it is certificate ${digest}, and the page is about ${expected}`);
  return passed(name, `sha256:${digest}`);
}

function trustCheck({ value, reason }) {
  const name = "trust file";
  if (reason) return failed(name, reason);
  if (!value) return unknown(name, `${missing(TRUST)}, so no signature can be trusted`);
  return passed(name, `sha256:${value.digest}: compare it with the digest that the issuer published`);
}

async function signatureChecks(found, trust, logged, now, lacking) {
  const names = ["signatures", "key validity"];
  const open = !found ? "no certificate could be read" : !trust ? "there is no trust file" : lacking;
  if (open) return names.map((name) => unknown(name, open));
  const issued = seconds(found.statement.predicate.issued, "issued");
  const judged = await Promise.all(found.signatures.map((one) => judge(one, found.signed, trust)));
  const right = judged.filter((one) => one.right);
  const signers = new Set(right.map((one) => one.key.name));
  if (signers.size < trust.threshold) {
    return [tooFew(names[0], judged, signers.size, trust.threshold), unknown(names[1], "there are too few right signatures")];
  }
  const signed = passed(names[0], `signed by ${[...signers].sort().join(", ")}; ${trust.threshold} needed`);
  if (issued > now + CLOCKS_DIFFER_BY) return [signed, failed(names[1], `its signing time is in the future: ${inWords(issued)}`)];
  const dated = right.map((one) => ({ ...one, refused: refusal(one.key, issued, logged) }));
  const valid = new Set(dated.filter((one) => one.refused === null).map((one) => one.key.name));
  if (valid.size >= trust.threshold) return [signed, passed(names[1], `valid when they signed, ${inWords(issued)}`)];
  return [signed, failed(names[1], `${valid.size} of ${trust.threshold} keys were valid (${because(dated)})`)];
}

/** Say that too few have signed: a wrong signature is forged, one of an unknown key may be for another trust file. */
function tooFew(name, judged, signers, threshold) {
  const why = because(judged) && ` (${because(judged)})`;
  if (judged.some((one) => one.foreign)) return unknown(name, `this page cannot check all signatures${why}`);
  if (judged.some((one) => one.key && one.refused)) return failed(name, `what it says was changed after signing, or it was never signed${why}`);
  if (signers) return failed(name, `signed by ${signers} of the ${threshold} holders of keys that have to sign${why}`, NOT_VERIFIED);
  return failed(name, `not signed by anyone in your trust file: a wrong trust file, or not from this issuer${why}`, NOT_VERIFIED);
}

const because = (judged) =>
  judged.filter((one) => one.refused).map((one) => `${one.key?.name ?? one.keyid.slice(0, 12)}: ${one.refused}`).join("; ");

/** Say whether a signature is right; `foreign`: of a kind that only mbd verify can check. */
async function judge({ keyid, value }, message, trust) {
  const key = trust.keys.find((one) => one.id === keyid);
  if (!key) return { keyid, refused: "this key is not in the trust file" };
  if (key.purpose !== "certificate") return { keyid, key, refused: "this key is not trusted to sign certificates" };
  if (!key.raw) return { keyid, key, foreign: true, refused: `${key.scheme} can be checked by mbd verify, not here` };
  const right = await isSignature(key.raw, value, message);
  return { keyid, key, right, refused: right ? null : "the signature is wrong" };
}

async function logChecks(envelope, proof, trust, lacking) {
  const [inclusion, checkpoint] = ["log inclusion", "log checkpoint"];
  if (proof.reason) return { checks: [failed(inclusion, proof.reason), unknown(checkpoint, "it is part of the proof")] };
  const open = !proof.value ? missing(PROOF) : !envelope ? missing(CERTIFICATE) : !trust ? "there is no trust file" : lacking;
  if (open) return { checks: [unknown(inclusion, open), unknown(checkpoint, open)] };
  const { index, tree_size: size, hashes, checkpoint: note } = proof.value;
  const head = await attempt(() => verifyCheckpoint(note, trust));
  if (!head.value) return { checks: [unknown(inclusion, "the checkpoint cannot be trusted"), failed(checkpoint, head.reason, head.foreign ? NOT_VERIFIED : FORGED)] };
  const signed = passed(checkpoint, `of ${size} ${size === 1 ? "entry" : "entries"}, signed by the log ${inWords(head.value.time)}`);
  const root = await rootByInclusion(await sha256(envelope), index, size, hashes);
  if (head.value.added) return { checks: [failed(inclusion, "the checkpoint carries signatures that are not the log's"), signed] };
  if (!root || size !== head.value.size || !same(root, head.value.root)) {
    return { checks: [failed(inclusion, "the proof does not lead from the certificate to the log's root"), signed] };
  }
  const entry = passed(inclusion, `entry ${index} of the log ${trust.origin}`);
  return { checks: [entry, signed], logged: { index, time: head.value.time } };
}

async function digestChecks(files, found, progress) {
  if (!found) return [unknown(`digest of ${WEIGHTS}`, "no certificate could be read")];
  const checks = [];
  for (const { name, digest } of found.statement.subject) {
    const check = `digest of ${name}`;
    if (!files.has(name)) {
      checks.push(unknown(check, missing(name), name !== WEIGHTS));
      continue;
    }
    const file = await attempt(() => sha256File(files.get(name), progress));
    if (file.value === digest.sha256) checks.push(passed(check, `sha256:${digest.sha256}`));
    else checks.push(failed(check, file.reason ?? `${name} was changed after signing, or belongs to another certificate: sha256:${file.value}, certified is ${digest.sha256}`));
  }
  return checks;
}

function dateCheck(found, now) {
  const name = "re-audit date";
  if (!found) return unknown(name, "no certificate could be read");
  const due = seconds(found.statement.predicate.reaudit_by, "reaudit_by");
  if (now > due) return failed(name, `a new audit was due by ${day(due)}; the store shows whether there was one`, NOT_VERIFIED);
  return passed(name, `the next audit is due by ${day(due)}`);
}

/** Return the worst verdict, as mbd verify does. */
const decide = (checks) => Object.keys(VERDICTS).findLast((verdict) => verdict === VERIFIED || checks.some((check) => check.verdict === verdict));

/** Return whether nothing in the certificate and its files is wrong or missing; only the store knows if it is in force. */
const genuine = (checks) => decide(checks.filter((check) => !STANDING.includes(check.name))) === VERIFIED;

function inWordsOf(checks) {
  const verdict = decide(checks);
  const worst = checks.find((check) => check.verdict === verdict);
  const count = (outcome) => checks.filter((check) => check.outcome === outcome).length;
  const made = `${count("passed")} checks passed, ${count("failed")} failed, ${count("not checkable")} were not made here.`;
  if (!genuine(checks)) return `${verdict.toUpperCase()}: ${VERDICTS[verdict].sentence} ${worst.name}: ${worst.reason}. ${VERDICTS[verdict].to_do} ${made}`;
  const weights = checks.some((check) => check.name === `digest of ${WEIGHTS}` && check.outcome === "passed");
  const model = weights ? "these are the weights that it certifies" : "no model was given";
  return `NOT VERIFIED yet: the certificate is genuine, and ${model}. Only the store knows whether it is in force: mbd verify. ${made}`;
}
