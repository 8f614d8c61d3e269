// The transparency log: RFC 6962 hashes, a proof of inclusion, and the signed checkpoint that it leads to.

const PLAIN = 0x01;
const DATED = 0x04;
const MOST_SIGNATURES = 32;
const LOG_SIGNATURES = 2;
const LATEST = 253402300799n;

function readProof(bytes) {
  const text = toText(bytes, "the proof");
  const proof = withKeys(parseJson(text, "the proof"), ["checkpoint", "hashes", "index", "tree_size"], "the proof");
  const whole = (number, least) => Number.isSafeInteger(number) && number >= least;
  const hashes = Array.isArray(proof.hashes) && proof.hashes.every(isDigest);
  if (!whole(proof.index, 0) || !whole(proof.tree_size, 1) || !hashes || typeof proof.checkpoint !== "string") {
    throw new Refused("the proof is not a place, a size, hashes and a checkpoint");
  }
  const { index, tree_size, hashes: path, checkpoint } = proof;
  if (`${JSON.stringify({ index, tree_size, hashes: path, checkpoint }, null, 2)}\n` !== text) {
    throw new Refused("the proof is not written in its one form");
  }
  return proof;
}

/** The checkpoint is of another log, or no key of the log that is trusted has signed it. */
class UnknownLogKey extends Refused {}

const nodeHash = (left, right) => sha256(joined([1], left, right));

/** Return the root that a leaf and its proof lead to; null if the proof cannot be one of this place (RFC 9162, 2.1.3.2). */
async function rootByInclusion(leaf, index, size, hashes) {
  if (index >= size) return null;
  let place = BigInt(index);
  let last = BigInt(size) - 1n;
  let root = await sha256(joined([0], leaf));
  for (const hash of hashes) {
    if (last === 0n) return null;
    if (place & 1n || place === last) {
      root = await nodeHash(fromHex(hash), root);
      while (!(place & 1n) && place) [place, last] = [place >> 1n, last >> 1n];
    } else {
      root = await nodeHash(root, fromHex(hash));
    }
    [place, last] = [place >> 1n, last >> 1n];
  }
  return last === 0n ? root : null;
}

/** Return size, root and time of a checkpoint that a trusted key of the log has signed. */
async function verifyCheckpoint(note, trust) {
  const { text, signatures } = readNote(note);
  const [origin, digits, encoded, ...more] = text.slice(0, -1).split("\n");
  if (more.length || !/^(0|[1-9]\d*)$/.test(digits ?? "") || !Number.isSafeInteger(Number(digits))) {
    throw new Refused("it is not written as a checkpoint");
  }
  const root = fromBase64(encoded ?? "", "the root");
  if (root.length !== 32) throw new Refused("the root is not a SHA-256");
  if (origin !== trust.origin) throw new UnknownLogKey(`it is of the log ${origin}, and ${trust.origin} is trusted`);
  let reason = "no trusted key of the log has signed it";
  for (const key of trust.keys.filter((one) => one.purpose === "log" && one.raw)) {
    const time = await signedAt(text, origin, signatures, key);
    if (time === null) continue;
    const refused = key.revoked ? `the log's key is revoked (${key.revoked.reason})` : refusal(key, time, null);
    if (refused === null) return { size: Number(digits), root, time, added: signatures.length !== LOG_SIGNATURES };
    reason = refused;
  }
  throw new UnknownLogKey(reason);
}

function readNote(note) {
  const gap = note.lastIndexOf("\n\n");
  if (gap < 0 || /[\x00-\x09\x0b-\x1f]/.test(note) || !note.endsWith("\n")) {
    throw new Refused("it is not written as a signed note");
  }
  const lines = note.slice(gap + 2, -1).split("\n");
  if (lines.length > MOST_SIGNATURES) throw new Refused("it has too many signatures");
  const signatures = lines.map((line) => {
    const parts = /^— ([^ ]+) ([^ ]+)$/.exec(line);
    const bytes = parts && fromBase64(parts[2], "a signature");
    if (!parts || bytes.length < 5) throw new Refused("a signature line is malformed");
    return { name: parts[1], id: toHex(bytes.slice(0, 4)), value: bytes.slice(4) };
  });
  if (new Set(signatures.map((one) => `${one.name} ${one.id}`)).size !== lines.length) {
    throw new Refused("one key has signed it twice");
  }
  return { text: note.slice(0, gap + 1), signatures };
}

/** Return when this key signed; null if it did not. */
async function signedAt(text, origin, signatures, key) {
  const by = async (kind) => {
    const id = toHex((await sha256(joined(utf8.encode(`${origin}\n`), [kind], key.raw))).slice(0, 4));
    return signatures.find((one) => one.name === origin && one.id === id)?.value;
  };
  const [plain, dated] = [await by(PLAIN), await by(DATED)];
  if (!plain && !dated) return null;
  if (!plain || !dated || dated.length < 8) throw new Refused("one of the log's two signatures is missing");
  const time = new DataView(dated.buffer, dated.byteOffset, 8).getBigUint64(0);
  const message = utf8.encode(`cosignature/v1\ntime ${time}\n${text}`);
  const right = (await isSignature(key.raw, plain, utf8.encode(text))) && (await isSignature(key.raw, dated.slice(8), message));
  if (!right || time > LATEST) throw new Refused("the log's signature is wrong");
  return Number(time);
}
