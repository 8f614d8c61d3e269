// The certificate: a DSSE envelope around an in-toto statement.

const PAYLOAD_TYPE = "application/vnd.in-toto+json";
const STATEMENT_TYPE = "https://in-toto.io/Statement/v1";
const DELETION_TYPE = "urn:missing-by-design:modality-deletion:v1";

/** Return what can be read of an envelope; `form` is what is wrong with how it is written, if anything is. */
function readEnvelope(bytes) {
  const text = toText(bytes, "the certificate");
  const envelope = withKeys(parseJson(text, "the certificate"), ["payload", "payloadType", "signatures"], "the envelope");
  if (envelope.payloadType !== PAYLOAD_TYPE) throw new Refused("the signed content is not an in-toto statement");
  if (typeof envelope.payload !== "string") throw new Refused("the payload is not base64");
  const payload = fromBase64(envelope.payload, "the payload");
  const signatures = readSignatures(envelope.signatures);
  const content = toText(payload, "the signed content");
  const statement = parseJson(content, "the signed content");
  readStatement(statement);
  let form = null;
  if (canonical(envelope) !== text) form = "the envelope is not canonical";
  else if (canonical(statement) !== content) form = "the signed content is not canonical";
  return { statement, signatures, form, signed: preAuthentication(payload) };
}

function readSignatures(signatures) {
  if (!Array.isArray(signatures) || !signatures.length) throw new Refused("the envelope has no signatures");
  const read = signatures.map((one) => {
    withKeys(one, ["keyid", "sig"], "a signature");
    if (!isDigest(one.keyid) || typeof one.sig !== "string") throw new Refused("a signature is not written as one");
    return { keyid: one.keyid, value: fromBase64(one.sig, "a signature") };
  });
  if (read.some((one, place) => place && read[place - 1].keyid >= one.keyid)) {
    throw new Refused("the signatures are not in the order of their keys, each once");
  }
  return read;
}

function readStatement(statement) {
  withKeys(statement, ["_type", "predicate", "predicateType", "subject"], "the statement");
  if (statement._type !== STATEMENT_TYPE || statement.predicateType !== DELETION_TYPE) {
    throw new Refused(`this is not a deletion certificate but a statement of type ${statement.predicateType}`);
  }
  const subjects = Array.isArray(statement.subject) ? statement.subject : [];
  for (const subject of subjects) {
    withKeys(subject, ["digest", "name"], "a subject");
    if (typeof subject.name !== "string" || !isDigest(withKeys(subject.digest, ["sha256"], "a digest").sha256)) {
      throw new Refused("a subject is not a name and a SHA-256");
    }
  }
  const names = new Set(subjects.map((subject) => subject.name));
  if (!names.has("model.safetensors") || names.size !== subjects.length) {
    throw new Refused("the subjects are not those of a certificate");
  }
  for (const time of ["issued", "reaudit_by"]) seconds(statement.predicate?.[time], time);
}

/** What the signatures are over: DSSEv1, both parts with their lengths. */
function preAuthentication(payload) {
  const type = utf8.encode(PAYLOAD_TYPE);
  return joined(utf8.encode(`DSSEv1 ${type.length} ${PAYLOAD_TYPE} ${payload.length} `), payload);
}
