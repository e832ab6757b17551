import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { explainTlsError } from "../../src/connection/tls-error.ts";

const explain = (url: string, fields: object) => explainTlsError(Object.assign(new Error("text"), fields), url).message;

describe("explainTlsError", () => {
  test("names the reason of OpenSSL, or the message of an error without a reason", () => {
    const fields = { code: "ERR_SSL_WRONG_VERSION_NUMBER", reason: "wrong version number" };
    assert.match(explain("wss://h", fields), /^wss:\/\/h: TLS failed: wrong version number; .* use ws:/);
    assert.match(explain("wss://h", { code: "EPROTO" }), /^wss:\/\/h: TLS failed: text; .* use ws:/);
  });

  test("suggests no ws:// if the server rejected the handshake by TLS", () => {
    const fields = { code: "ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED", reason: "tlsv13 alert certificate required" };
    assert.equal(explain("wss://h", fields), "wss://h: TLS failed: tlsv13 alert certificate required");
  });

  test("suggests wss:// only for a closed connection to a ws:// URL", () => {
    assert.equal(explain("ws://h", { code: "ECONNRESET" }), "ws://h: text; if the server speaks TLS, use wss://");
    assert.equal(explain("wss://h", { code: "ECONNRESET" }), "text");
    assert.equal(explain("ws://h", { code: "ECONNREFUSED" }), "text");
  });
});
