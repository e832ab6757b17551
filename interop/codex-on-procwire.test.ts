import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { CuttingProxy } from "../test/support/faults/cutting-proxy.ts";
import { isAlive, PROCWIRE, type ServeChild, serve } from "../test/support/servers/serve.ts";
import { until } from "../test/support/system/until.ts";
import {
  type CodexTarget,
  codexHome,
  type ModelCall,
  type NextCall,
  noCodex,
  type Plan,
  runCodex,
} from "./codex-run.ts";

/** The real `codex exec` runs on `procwire serve`; only the model is a mock. */

const BYPASS = ["--dangerously-bypass-approvals-and-sandbox"];

const exec = (cmd: string, more: Record<string, unknown> = {}): ModelCall => ({
  name: "exec_command",
  args: { cmd, login: false, ...more },
});

async function run(target: CodexTarget, calls: readonly NextCall[] | Plan): Promise<string[]> {
  using place = codexHome();
  const { exitCode, outputs, stderr } = await runCodex(place, target, calls, BYPASS);
  assert.equal(exitCode, 0, stderr);
  return outputs;
}

/**
 * Starts a process and writes to it: each time the output matches, the model writes the next characters. The model
 * polls until the output matches, so that a slow machine does not matter.
 */
function conversation(first: ModelCall, ...exchanges: [expected: RegExp, chars: string][]): Plan {
  let next = 0;
  return (outputs) => {
    if (outputs.length === 0) return first;
    if (outputs.length > 30 || /Process exited/.test(outputs.at(-1) ?? "")) return null;
    const session_id = Number(/session ID (\d+)/.exec(outputs[0] ?? "")?.[1]);
    const exchange = exchanges[next];
    if (exchange?.[0].test(outputs.join(""))) {
      next++;
      return { name: "write_stdin", args: { session_id, chars: exchange[1], yield_time_ms: 1000 } };
    }
    return { name: "write_stdin", args: { session_id, chars: "", yield_time_ms: 5000 } };
  };
}

/** Makes a harmless call once a file exists. */
const waitedFor =
  (path: string): NextCall =>
  async () => {
    await until(`${path} is there`, () => existsSync(path) && readFileSync(path, "utf8").endsWith("\n"));
    return exec("true");
  };

const environment = (line: string) =>
  `default = "here"\ninclude_local = false\n[[environments]]\nid = "here"\n${line}\n`;

describe("the real codex exec on procwire serve", { skip: noCodex }, () => {
  let server: ServeChild;
  before(async () => {
    server = await serve();
  });
  after(() => server.stop());

  const targets: Record<string, () => CodexTarget> = {
    "by CODEX_EXEC_SERVER_URL": () => server.url,
    "by a url in environments.toml": () => ({ environments: environment(`url = "${server.url}"`) }),
    "by a program in environments.toml": () => ({
      environments: environment(`program = ${JSON.stringify(PROCWIRE)}\nargs = ["serve"]`),
    }),
  };
  for (const [how, target] of Object.entries(targets)) {
    describe(how, () => {
      test("runs a command that succeeds and a command that fails", async () => {
        const [good, bad] = await run(target(), [exec("echo hi; pwd"), exec("echo oops >&2; exit 3")]);
        assert.match(good ?? "", /Process exited with code 0\n.*Output:\nhi\n\/.*\/workspace\n$/s);
        assert.match(bad ?? "", /Process exited with code 3\n.*Output:\noops\n$/s);
      });

      test("keeps a terminal session and writes to it", async () => {
        const outputs = await run(
          target(),
          conversation(
            exec("stty size; cat", { tty: true, yield_time_ms: 500 }),
            [/24 80\r\n/, "hello\n"],
            [/hello\r\nhello\r\n/, "\u0004"],
          ),
        );
        assert.match(outputs[0] ?? "", /Process running with session ID \d+\n/);
        assert.match(outputs.join(""), /24 80\r\n.*hello\r\nhello\r\n.*Process exited with code 0\n/s);
      });
    });
  }

  for (const tty of [true, false]) {
    test(`interrupts a process ${tty ? "in" : "without"} a terminal by Ctrl-C`, async () => {
      const script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done";
      const outputs = await run(
        server.url,
        conversation(exec(script, { tty, yield_time_ms: 500 }), [/ready/, "\u0003"]),
      );
      assert.match(outputs[0] ?? "", /Process running with session ID \d+\n/);
      assert.match(outputs.at(-1) ?? "", /Process exited with code 5\n/);
      assert.match(outputs.join(""), /caught/);
    });
  }

  test("receives head, tail and size of large output", async () => {
    const [output] = await run(server.url, [exec("seq 1 400000", { max_output_tokens: 2000, yield_time_ms: 20_000 })]);
    assert.match(output ?? "", /Process exited with code 0\n/);
    assert.match(output ?? "", /truncated output/);
    assert.match(output ?? "", /\n1\n2\n3\n/);
    assert.match(output ?? "", /\n399999\n400000\n$/);
  });

  test("receives the reason why a process cannot be started", async () => {
    const [output] = await run(server.url, [exec("echo never", { workdir: "/no/such/directory" })]);
    assert.match(output ?? "", /exec-server rejected request \(-32603\): No such file or directory/);
  });

  test("patches files", async () => {
    using place = codexHome();
    writeFileSync(join(place.workspace, "old.txt"), "one\ntwo\n");
    const patch = [
      "apply_patch <<'EOF'",
      "*** Begin Patch",
      "*** Add File: dir/new.txt",
      "+fresh",
      "*** Update File: old.txt",
      "@@",
      " one",
      "-two",
      "+2",
      "*** End Patch",
      "EOF",
      "",
    ].join("\n");
    const { exitCode, outputs, stderr } = await runCodex(place, server.url, [exec(patch)], BYPASS);
    assert.equal(exitCode, 0, stderr);
    assert.match(outputs[0] ?? "", /Success/);
    assert.equal(readFileSync(join(place.workspace, "dir/new.txt"), "utf8"), "fresh\n");
    assert.equal(readFileSync(join(place.workspace, "old.txt"), "utf8"), "one\n2\n");
  });

  test("reads the instructions of the workspace through the server's file methods", async () => {
    using place = codexHome();
    writeFileSync(join(place.workspace, "AGENTS.md"), "Always say PINEAPPLE.\n");
    const { exitCode, stderr, firstRequest } = await runCodex(place, server.url, [], BYPASS);
    assert.equal(exitCode, 0, stderr);
    assert.match(JSON.stringify(firstRequest), /PINEAPPLE/);
  });

  test("terminates a background process at the end of the turn", async () => {
    using place = codexHome();
    const note = join(place.workspace, "pid");
    const script = `echo $$ > '${note}'; exec sleep 1000`;
    const { exitCode, outputs, stderr } = await runCodex(
      place,
      server.url,
      [exec(script, { yield_time_ms: 300 }), waitedFor(note)],
      BYPASS,
    );
    assert.equal(exitCode, 0, stderr);
    assert.match(outputs[0] ?? "", /Process running with session ID/);
    const pid = Number(readFileSync(note, "utf8"));
    assert.ok(pid > 1);
    await until("the background process is gone", () => !isAlive(pid));
  });

  test("continues after a cut during a command", async () => {
    await using proxy = await CuttingProxy.to(server.url);
    using place = codexHome();
    const go = join(place.workspace, "go");
    // The command waits for the cut, so that the cut always happens during the command.
    const script = `echo before; while [ ! -e '${go}' ]; do sleep 0.02; done; echo after; exit 4`;
    proxy.onForward = () => {
      if (proxy.connections === 1 && proxy.sawText(Buffer.from("before\n").toString("base64"))) {
        proxy.cut();
        writeFileSync(go, "");
      }
    };
    const { exitCode, outputs, stderr } = await runCodex(
      place,
      proxy.url,
      [exec(script, { yield_time_ms: 20_000 }), exec("echo still here")],
      BYPASS,
    );
    assert.equal(exitCode, 0, stderr);
    assert.ok(proxy.connections >= 2, "it did not come back");
    assert.match(outputs[0] ?? "", /Process exited with code 4\n.*Output:\nbefore\nafter\n$/s);
    assert.match(outputs[1] ?? "", /still here/);
  });

  test("loses nothing of 1.3 MB of output during which the connection is cut", async () => {
    await using proxy = await CuttingProxy.to(server.url);
    let cut = false;
    proxy.onForward = () => {
      if (cut || proxy.forwarded < 500_000) return;
      cut = true;
      proxy.cut();
    };
    // Codex retains one megabyte, but its token count covers all output.
    const lines =
      "i=0; while [ $i -lt 100 ]; do seq -f '%012.0f' $((i*1000)) $((i*1000+999)); sleep 0.005; i=$((i+1)); done";
    const [output] = await run(proxy.url, [
      exec(`${lines}; echo the end`, { yield_time_ms: 25_000, max_output_tokens: 500 }),
    ]);
    assert.ok(cut);
    assert.ok(proxy.connections >= 2, "it did not come back");
    assert.match(output ?? "", /Process exited with code 0\n/);
    assert.match(output ?? "", /\n000000000001\n/);
    assert.match(output ?? "", /\n000000099999\nthe end\n$/);
    // Codex counts one token per four bytes, so this count means that no byte is missing.
    assert.match(output ?? "", /Original token count: 3250\d\d\n/);
  });
});
