/** What can be done about a TLS connection that failed; an error of anything else as it is. */
export function explainTls(error: Error, url: string): Error {
  const hint = hintOf(error, url);
  if (hint === null) return error;
  return Object.assign(new Error(`${url}: ${hint}`, { cause: error }), { code: "TLS" });
}

/** Nobody that this machine trusts has signed it. */
const UNKNOWN_SIGNER: ReadonlySet<string> = new Set([
  ...["DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_VERIFY_LEAF_SIGNATURE"],
  ...["UNABLE_TO_GET_ISSUER_CERT", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY"],
]);

function hintOf(error: Error, url: string): string | null {
  const code = "code" in error ? String(error.code) : "";
  if (UNKNOWN_SIGNER.has(code))
    return `the server's certificate is signed by nobody this machine trusts (${code}); give the certificate of its authority with \`--tls-ca FILE\` (tlsCa), or the server's own if it is self-signed`;
  switch (code) {
    case "ERR_TLS_CERT_ALTNAME_INVALID": {
      const reason = "reason" in error ? String(error.reason) : error.message;
      return `the server's certificate is for another name (${reason}); connect by a name it has, or give the server a certificate with this one`;
    }
    case "CERT_HAS_EXPIRED":
      return "the server's certificate has expired; put a new one in its place and send the server SIGHUP";
    case "CERT_NOT_YET_VALID":
      return "the server's certificate is not valid yet; look at the clocks of both machines";
    case "EPROTO":
      return /wrong version number|packet length too long/i.test(error.message)
        ? "the server does not speak TLS; use ws://, or start it with --tls-cert and --tls-key"
        : `TLS failed: ${error.message}`;
    case "ECONNRESET":
    case "HPE_INVALID_CONSTANT":
      return url.startsWith("ws:") ? `${error.message}; if the server speaks TLS, use wss://` : null;
  }
  return null;
}
