import assert from "node:assert/strict";
import { existsSync, statSync } from "node:fs";
import { describe, test } from "node:test";
import { DocumentTerminal } from "../support/system/document-commands.ts";

describe("procwire start", { timeout: 600_000 }, () => {
  for (const auth of [[], ["--ws-auth", "auto"]]) {
    const line = ["procwire", "start", ...auth].join(" ");

    test(`prints commands that work when they are pasted: ${line}`, async () => {
      await using terminal = new DocumentTerminal({ programs: { codex: 'echo "codex at $CODEX_EXEC_SERVER_URL"' } });
      const env = `PROCWIRE_RUNTIME_DIR=${terminal.directory}/run`;
      const server = await terminal.begin(`${env} ${line}`, /Open the web console[\s\S]*Ctrl-C stops/);
      const [, printed = ""] = /Try, in another terminal:\s*\n([\s\S]*?)\r?\nCtrl-C/.exec(server.shown) ?? [];
      const commands = printed.split("\n").map((command) => command.trim());
      assert.equal(commands.length, auth.length === 0 ? 5 : 4, printed);
      for (const command of commands) {
        const typed = command.endsWith("-- bash")
          ? await terminal.type(command, [/[$#] $/, "echo $((6 * 7)); exit\r"])
          : await terminal.type(command);
        assert.equal(typed.code, 0, `${command}: ${typed.shown}`);
      }
      const [, token] = /until the server stops:\s*\n\s*(\S+)/.exec(server.shown) ?? [];
      assert.equal(token === undefined, auth.length === 0, server.shown);
      if (token !== undefined) {
        assert.equal(statSync(token).mode & 0o777, 0o600);
        const refused = await terminal.type(commands[0]?.replace(/ --token-file \S+/, "") ?? "");
        assert.match(refused.shown, /401.*--token-file/);
      }
      await server.interrupt();
      if (token !== undefined) assert.ok(!existsSync(token), "the token file is removed with the server");
    });
  }
});
