import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { PROTOCOL_DOCUMENT, protocolDocument } from "../../scripts/protocol-doc.ts";
import { clientNotifications, methods, serverNotifications } from "../../src/protocol/methods.ts";

describe("PROTOCOL.md", () => {
  test("is what the method table says; `npm run protocol` writes it anew", () => {
    assert.equal(readFileSync(PROTOCOL_DOCUMENT, "utf8"), protocolDocument());
  });

  test("tells every method and every notification, each once", () => {
    const document = protocolDocument();
    for (const name of Object.keys({ ...methods, ...serverNotifications, ...clientNotifications })) {
      assert.equal(document.split(`\n### ${name}\n`).length, 2, name);
    }
  });

  test("leads nowhere that is not there", () => {
    const document = protocolDocument();
    const headings = new Set([...document.matchAll(/^#+ (.+)$/gm)].map(([, title]) => title?.toLowerCase()));
    for (const [, target] of document.matchAll(/\]\(#([^)]+)\)/g)) assert.ok(headings.has(target), target);
  });
});
