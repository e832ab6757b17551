/** Processes in a real terminal send terminal queries, and only the test replies. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, describe, test } from "node:test";
import type { StartParams } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { TerminalResponder } from "../../../src/exec/terminal/terminal-responder.ts";
import { createLocalBackend } from "../../../src/host/create-local-backend.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

/** Home directory, because editors and shells write to it. */
const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

/** Sends each argument as a query and prints the replies, up to that of a final query, which ends in n. */
const ASK = String.raw`
stty raw -echo
for question; do
  printf "$question"'\033[5n'
  IFS= read -r -d n -t 20 answer || answer="none"
  printf '\r\n<%s>\r\n' "$(printf %s "$answer" | od -An -v -c | tr -d ' \n')"
done`;

const isInstalled = (program: string) =>
  (process.env.PATH ?? "").split(":").some((directory) => existsSync(`${directory}/${program}`));

const start = (argv: string[], more: Partial<StartParams> = {}): StartParams => ({
  processId: "p",
  argv,
  cwd: "/",
  env: { PATH: process.env.PATH ?? "", TERM: "xterm-256color", HOME: scratch.path, LANG: "C.UTF-8" },
  tty: true,
  size: { rows: 24, cols: 80 },
  terminalQueries: "server",
  ...more,
});

/** The reply to the final query as `od -c` prints it. */
const STATUS = "033[0";

/** Test names of esctest2. */
const REPLIES: readonly (readonly [string, string, string])[] = [
  ["DSR 5", "", ""],
  ["DSR CPR (6n)", String.raw`\033[3;7H\033[6n`, "033[3;7R"],
  ["DECXCPR (?6n)", String.raw`\033[3;7H\033[?6n`, "033[?3;7R"],
  ["CPR behind the last column", String.raw`\033[1;80Hx\033[6n`, "033[1;80R"],
  ["DA1", String.raw`\033[c`, "033[?1;2c"],
  ["DA1 with 0", String.raw`\033[0c`, "033[?1;2c"],
  ["DECID", String.raw`\033Z`, "033[?1;2c"],
  ["DA2", String.raw`\033[>c`, "033[>0;276;0c"],
  ["DA3", String.raw`\033[=c`, "033P!|00000000033\\"],
  ["XTVERSION", String.raw`\033[>q`, "033P>|procwire033\\"],
  ["DECREQTPARM", String.raw`\033[0x`, "033[2;1;1;128;128;1;0x"],
  ["DECRQM of a mode that is set", String.raw`\033[?7$p`, "033[?7;1$y"],
  ["DECRQM of a mode that was set just now", String.raw`\033[?2004h\033[?2004$p`, "033[?2004;1$y"],
  ["DECRQM of a mode that was reset", String.raw`\033[?2004l\033[?2004$p`, "033[?2004;2$y"],
  ["DECRQM of an unknown mode", String.raw`\033[?9999$p`, "033[?9999;0$y"],
  ["DECRQM of an ANSI mode", String.raw`\033[4$p`, "033[4;2$y"],
  ["DECRQSS of SGR", String.raw`\033P$qm\033\\`, "033P1$r0m033\\"],
  ["XTGETTCAP", String.raw`\033P+q544e\033\\`, "033P0+r033\\"],
  ["XTWINOPS report state", String.raw`\033[11t`, "033[1t"],
  ["XTWINOPS size in pixels", String.raw`\033[14t`, "033[4;384;640t"],
  ["XTWINOPS cell size", String.raw`\033[16t`, "033[6;16;8t"],
  ["XTWINOPS size in characters", String.raw`\033[18t`, "033[8;24;80t"],
  ["XTWINOPS screen size", String.raw`\033[19t`, "033[9;24;80t"],
  ["XTWINOPS title, which is never told", String.raw`\033]2;rm -rf\007\033[21t`, "033]l033\\"],
  ["dynamic color 10", String.raw`\033]10;?\007`, "033]10;rgb:e5e5/e5e5/e5e5033\\"],
  ["dynamic color 11", String.raw`\033]11;?\033\\`, "033]11;rgb:0000/0000/0000033\\"],
  ["dynamic color 12", String.raw`\033]12;?\007`, "033]12;rgb:e5e5/e5e5/e5e5033\\"],
  ["two dynamic colors", String.raw`\033]10;?;?\007`, "033]10;rgb:e5e5/e5e5/e5e5033\\033]11;rgb:0000/0000/0000033\\"],
  ["color 1", String.raw`\033]4;1;?\007`, "033]4;1;rgb:cdcd/0000/0000033\\"],
  ["color 21", String.raw`\033]4;21;?\007`, "033]4;21;rgb:0000/0000/ffff033\\"],
  ["color 255", String.raw`\033]4;255;?\007`, "033]4;255;rgb:eeee/eeee/eeee033\\"],
  ["the clipboard, which is never told", String.raw`\033]52;c;?\007`, ""],
];

describe("TerminalResponder", () => {
  test("replies to each query once and in order", async () => {
    await using backend = createLocalBackend();
    const child = await backend.start(start(["bash", "-c", ASK, "ask", ...REPLIES.map(([, asked]) => asked)]));
    const { reason } = await child.wait({ timeoutMs: 60_000 });
    assert.equal(reason, "exited");
    const shown = Buffer.from((await child.snapshot()).terminal).toString();
    const answers = Array.from(shown.matchAll(/<(.*)>/g), ([, answer]) => answer);
    const expected = REPLIES.map(([name, , answer]) => `${name}: ${answer}${STATUS}`);
    assert.deepEqual(
      answers.map((answer, at) => `${REPLIES[at]?.[0]}: ${answer}`),
      expected,
    );
  });

  test("replies with the current terminal size", async () => {
    await using backend = createLocalBackend();
    const script = `stty raw -echo; printf ready; read -r -d x; ${ASK}`;
    const child = await backend.start(start(["bash", "-c", script, "ask", String.raw`\033[18t`]));
    await child.wait({ until: { type: "output", pattern: "ready" } });
    await child.resize({ rows: 50, cols: 132 });
    await child.write(Buffer.from("x"));
    const { match } = await child.wait({ until: { type: "output", pattern: "<.*>" }, timeoutMs: 120_000 });
    assert.equal(match, `<033[8;50;132t${STATUS}>`);
  });

  for (const terminalQueries of ["client", undefined] as const)
    test(`does not reply with terminalQueries: ${terminalQueries ?? "nothing"}`, async () => {
      await using backend = createLocalBackend();
      const script = String.raw`stty raw -echo; printf '\033[6n\033[c'; read -r -d x answer; printf '<%q>' "$answer"`;
      const child = await backend.start(start(["bash", "-c", script], { terminalQueries }));
      await child.wait({ until: { type: "output", pattern: "c$" }, timeoutMs: 120_000 });
      await child.write(Buffer.from("typedx"));
      const { match } = await child.wait({ until: { type: "output", pattern: "<.*>" }, timeoutMs: 120_000 });
      assert.equal(match, "<typed>");
    });

  test("does not reply to queries from before it was enabled", async () => {
    await using backend = createLocalBackend();
    const script = String.raw`stty raw -echo; printf 'abc\033[6n'; read -r -d x a; printf '\033[6n'; read -r -d R b; printf '<%q %q>' "$a" "$b"`;
    const child = await backend.start(start(["bash", "-c", script], { terminalQueries: undefined }));
    await child.wait({ until: { type: "output", pattern: "abc" } });
    child.setTerminalResponder(true);
    await child.write(Buffer.from("typedx"));
    const { match } = await child.wait({ until: { type: "output", pattern: "<.*>" }, timeoutMs: 120_000 });
    assert.equal(match, String.raw`<typed $'\E[1;4'>`);
  });

  test("bounds memory if a process floods queries and reads no reply", async () => {
    await using backend = createLocalBackend();
    const script = String.raw`stty raw -echo; q='\033[6n\033[c'; for i in 1 2 3 4 5 6 7 8 9 10; do q=$q$q; done; for i in 1 2 3 4 5 6 7 8; do printf "$q"; done; printf done; exec sleep 60`;
    const child = await backend.start(start(["bash", "-c", script]));
    await child.wait({ until: { type: "output", pattern: "done" }, timeoutMs: 120_000 });
    let former = -1;
    await until("the replies to end", async () => {
      const now = child.child?.input.queuedBytes ?? 0;
      const isSame = now === former;
      former = now;
      await new Promise((resolve) => setTimeout(resolve, 50));
      return isSame;
    });
    assert.ok((child.child?.input.queuedBytes ?? 0) < 256 * 1024);
    assert.equal(child.running, true);
  });

  test("ignores queries while more than 1 MiB waits to be drawn", async () => {
    const MIB = 1024 * 1024;
    const log = new EventLog({ isReplica: true, limits: { retainedBytes: 3 * MIB } });
    const replies: string[] = [];
    const responder = new TerminalResponder({
      log,
      size: () => ({ rows: 24, cols: 80 }),
      reply: (bytes) => void replies.push(Buffer.from(bytes).toString("latin1")),
    });
    const output = (text: string) => {
      const chunk = Buffer.from(text);
      log.append("pty", chunk);
      responder.feed(chunk);
    };
    const [position, status, attributes] = ["\x1b[6n", "\x1b[5n", "\x1b[c"];
    output(position.padStart(MIB, "\r"));
    output(status);
    output(attributes);
    await until("two replies", () => replies.length === 2);
    output(position);
    await until("the third reply", () => replies.length === 3);
    assert.deepEqual(replies, ["\x1b[1;1R", "\x1b[0n", "\x1b[1;1R"]);
    responder.dispose();
  });

  test("replies to vttest correctly", {
    skip: skipUnless(isInstalled("vttest"), "needs vttest"),
  }, async () => {
    await using backend = createLocalBackend();
    const child = await backend.start(start(["vttest"], { cwd: scratch.path }));
    let afterSeq = 0;
    const sees = async (pattern: string) => {
      const { reason, seq } = await child.wait({
        until: { type: "output", pattern },
        afterSeq,
        timeoutMs: 120_000,
      });
      assert.equal(reason, "matched", pattern);
      afterSeq = seq;
    };
    const menu = "Enter choice number";
    await sees(menu);
    await child.write(Buffer.from("6\r"));
    await sees(`Tertiary[^\\0]*${menu}`);
    const reports = [
      ["3", 'means "TERMINAL OK"[^\\0]*-- OK[^\\0]*-- OK[^\\0]*Push <RETURN>'],
      ["4", "means VT100 with AVO[^\\0]*Push <RETURN>"],
      ["5", "Pv=276[^\\0]*Push <RETURN>"],
      ["6", " ok[^\\0]*Push <RETURN>"],
      ["7", "-- OK[^\\0]*-- OK[^\\0]*Push <RETURN>"],
    ] as const;
    for (const [item, expected] of reports) {
      await child.write(Buffer.from(`${item}\r`));
      await sees(expected);
      await child.write(Buffer.from("\r"));
      await sees(menu);
    }
  });

  const hasBoth = isInstalled("vim") && isInstalled("fish");
  test("lets vim and fish start", { skip: skipUnless(hasBoth, "needs vim and fish") }, async () => {
    await using backend = createLocalBackend();
    const vim = await backend.start(start(["vim", "-u", "NONE", "-N"], { processId: "vim" }));
    // vim sends these queries once it knows the terminal type.
    await vim.wait({ until: { type: "output", pattern: "\\x1b\\[\\?12\\$p" }, timeoutMs: 120_000 });
    // The replies were parsed as replies, not inserted as text.
    await vim.write(Buffer.from(":echo v:termresponse\r"));
    const response = await vim.wait({ until: { type: "output", pattern: "0;276;0c" }, timeoutMs: 120_000 });
    assert.equal(response.reason, "matched");
    const fish = await backend.start(start(["fish", "--private", "--no-config"], { processId: "fish" }));
    await fish.wait({ until: { type: "output", pattern: "[>#] " }, timeoutMs: 120_000 });
    await fish.write(Buffer.from("echo sum-(math 40 + 2)\r"));
    const { reason } = await fish.wait({ until: { type: "output", pattern: "sum-42" }, timeoutMs: 120_000 });
    assert.equal(reason, "matched");
  });
});
