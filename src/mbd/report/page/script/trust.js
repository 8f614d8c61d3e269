// The trust file: whose signature counts, for what, and when.

const CLOCKS_DIFFER_BY = 300;
const ED25519_INFO = fromHex("302a300506032b6570032100");

async function readTrust(bytes) {
  const what = "the trust file";
  const text = toText(bytes, what);
  const file = withKeys(parseJson(text, what), ["sha256", "trust"], what);
  const trust = withKeys(file.trust, ["format", "keys", "log_origin", "threshold"], what);
  if (toHex(await sha256(utf8.encode(canonical(trust)))) !== file.sha256) throw new Refused(`${what} is damaged`);
  if (trust.format !== "missing-by-design/trust/v1") throw new Refused(`${what} is of a format that is not known here`);
  if (!Number.isInteger(trust.threshold) || trust.threshold < 1) throw new Refused(`${what} has no threshold`);
  const keys = await Promise.all(trust.keys.map(readKey));
  if (new Set(keys.map((key) => key.id)).size !== keys.length) throw new Refused(`${what} lists a key twice`);
  if (`${JSON.stringify(inOrder(file), null, 2)}\n` !== text) throw new Refused(`${what} is not as it was written`);
  return { keys, origin: trust.log_origin, threshold: trust.threshold, digest: file.sha256 };
}

/** Return a trust file with its fields in the order in which they are written. */
function inOrder({ trust: { format, threshold, log_origin, keys }, sha256 }) {
  const ordered = keys.map(({ id, name, purpose, scheme, public: pem, valid_from, valid_until, revoked }) => {
    const ended = revoked && { at: revoked.at, reason: revoked.reason, log_size: revoked.log_size };
    return { id, name, purpose, scheme, public: pem, valid_from, valid_until, revoked: ended };
  });
  return { trust: { format, threshold, log_origin, keys: ordered }, sha256 };
}

async function readKey(key) {
  const fields = ["id", "name", "public", "purpose", "revoked", "scheme", "valid_from", "valid_until"];
  withKeys(key, fields, "a key of the trust file");
  const info = fromPem(key.public);
  if (toHex(await sha256(info)) !== key.id) throw new Refused(`the key of ${key.name} is not the one that its id names`);
  const revoked = key.revoked && { ...key.revoked, at: seconds(key.revoked.at, "a revocation") };
  const raw = same(info.slice(0, 12), ED25519_INFO) && info.length === 44 ? info.slice(12) : null;
  return {
    id: key.id,
    name: key.name,
    purpose: key.purpose,
    scheme: key.scheme,
    raw,
    from: seconds(key.valid_from, "a key's begin"),
    until: key.valid_until === null ? Infinity : seconds(key.valid_until, "a key's end"),
    revoked,
  };
}

function fromPem(pem) {
  const lines = /^-----BEGIN PUBLIC KEY-----\n([A-Za-z0-9+/=\n]+)\n-----END PUBLIC KEY-----\n$/.exec(pem);
  if (!lines) throw new Refused("a public key is not PEM");
  return fromBase64(lines[1].replaceAll("\n", ""), "a public key");
}

/** Say why this browser cannot check Ed25519 signatures; null: it can. */
async function cannotVerify() {
  if (!globalThis.crypto?.subtle) {
    return "the browser gives this page no WebCrypto: open it as a file, or over https; or use mbd verify";
  }
  try {
    await importKey(new Uint8Array([0x58, ...new Uint8Array(31).fill(0x66)]));
  } catch {
    return "this browser's WebCrypto has no Ed25519: use a newer browser, or mbd verify";
  }
  return null;
}

const importKey = (raw) => crypto.subtle.importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);

async function isSignature(raw, signature, message) {
  try {
    return await crypto.subtle.verify({ name: "Ed25519" }, await importKey(raw), signature, message);
  } catch {
    return false; // not a point of the curve, or not 64 bytes
  }
}

/** Say why a right signature of `key`, said to be made `at` and logged so, does not count; null: it counts. */
function refusal(key, at, logged) {
  const times = logged ? [["signed", at, CLOCKS_DIFFER_BY], ["logged", logged.time, 0]] : [["signed", at, CLOCKS_DIFFER_BY]];
  for (const [what, time, early] of times) {
    if (time + early < key.from) return `it was ${what} ${inWords(time)}, before the key was valid`;
    if (time > key.until) return `it was ${what} ${inWords(time)}, after the key had expired`;
  }
  if (logged && at > logged.time + CLOCKS_DIFFER_BY) return "its signing time is after its log entry";
  if (!key.revoked) return null;
  const why = `the key is revoked since ${inWords(key.revoked.at)} (${key.revoked.reason})`;
  if (!logged) return `${why}, and no log entry shows that the signature is older`;
  const { log_size: size } = key.revoked;
  const late = size === null ? logged.time >= key.revoked.at : logged.index >= size;
  return late || at >= key.revoked.at ? `${why}, and the log entry came later` : null;
}
