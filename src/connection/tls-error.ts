import { getErrorCode } from "../base/error-code.ts";

/** Adds a remedy to the error of a failed TLS connection. Returns other errors unchanged. */
export function explainTlsError(error: Error, url: string): Error {
  const remedy = findRemedy(error, url);
  if (remedy === null) return error;
  return Object.assign(new Error(`${url}: ${remedy}`, { cause: error }), { code: "TLS" });
}

/** Error codes for a certificate without a trusted issuer. */
const UNKNOWN_SIGNER: ReadonlySet<string> = new Set([
  ...["DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_VERIFY_LEAF_SIGNATURE"],
  ...["UNABLE_TO_GET_ISSUER_CERT", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY"],
]);

function findRemedy(error: Error, url: string): string | null {
  const code = getErrorCode(error) ?? "";
  if (UNKNOWN_SIGNER.has(code))
    return `the issuer of the server's certificate is not trusted (${code}); pass the CA certificate, or the server's own if it is self-signed, with \`--tls-ca FILE\` (tlsCa)`;
  const reason = "reason" in error ? String(error.reason) : error.message;
  // Only a server that speaks TLS sends an alert.
  if (code.startsWith("ERR_SSL_") && code.includes("_ALERT_")) return `TLS failed: ${reason}`;
  if (code === "EPROTO" || code.startsWith("ERR_SSL_"))
    return `TLS failed: ${reason}; if the server does not speak TLS, use ws://, or start it with --tls-cert and --tls-key`;
  switch (code) {
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return `the server's certificate is for another name (${reason}); use a host name from the certificate, or install a certificate for this name`;
    case "CERT_HAS_EXPIRED":
      return "the server's certificate has expired; replace it and send SIGHUP to the server";
    case "CERT_NOT_YET_VALID":
      return "the server's certificate is not valid yet; check the clocks of both hosts";
    case "ERR_OSSL_X509_KEY_VALUES_MISMATCH":
      return "the key does not belong to the client certificate; check --tls-cert and --tls-key (tlsCert, tlsKey)";
    case "ECONNRESET":
    case "HPE_INVALID_CONSTANT":
      return /^ws:/i.test(url) ? `${error.message}; if the server speaks TLS, use wss://` : null;
  }
  return null;
}
