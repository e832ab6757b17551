/** A user takes over the terminal of a model in the page, types a password, and hands the terminal back. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { secretPath } from "../support/auth/secret-file.ts";
import { answer, functionCall, says, startMockResponses, toolOutputs } from "../support/models/mock-responses.ts";
import { startCli } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { openBrowser, screenText, selectAction, serveConsole, signedIn } from "./browser.ts";

const PASSWORD = "correct-horse-battery";
/** Prompts for a password as many programs do, and prints only its length. */
const ASKS = `printf 'Password: '; stty -echo; IFS= read -r p; stty echo; echo; echo "length \${#p}"; read -r end`;

describe("a model's terminal in the console", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    opened = await openBrowser();
  });
  after(async () => {
    await opened[Symbol.asyncDispose]();
  });

  test("waits for a password, is driven by the user and returned, and the password is stored nowhere", async () => {
    using scratch = scratchDirectory();
    const audit = secretPath(scratch.path, "audit.jsonl");
    const { server, loginUrl } = await serveConsole("--audit", audit);
    await using _ = server;
    const mock = await startMockResponses(({ body }) => {
      const outputs = toolOutputs(body);
      if (outputs.length === 0)
        return answer(functionCall("c0", "exec_command", { cmd: ASKS, tty: true, yield_time_ms: 1000 }));
      if (/User: drove/.test(outputs.at(-1) ?? "")) return says("done");
      const session_id = Number(/session ID (\d+)/.exec(outputs[0] ?? "")?.[1]);
      const handoff = { session_id, reason: "type the password", timeout_ms: 60_000 };
      return answer(functionCall(`c${outputs.length}`, "handoff_to_user", handoff));
    });
    const args = ["exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--connect", server.url, "go"];
    const run = startCli(args, {
      cwd: scratch.path,
      env: { OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "k", PROCWIRE_HOME: join(scratch.path, "home") },
    });
    try {
      const { page, problems } = await signedIn(opened.browser, loginUrl);
      const row = page.getByRole("row", { name: /waiting for a password/ });
      await row.waitFor();
      await row.getByRole("link").click();
      await until("the prompt", async () => /Password:/.test(await screenText(page)));
      await page.getByRole("button", { name: "Take over" }).click();
      await page.getByText("you are the driver").waitFor();
      await page.locator(".xterm-helper-textarea").focus();
      await page.keyboard.type(`${PASSWORD}\n`);
      await until("the length of the password", async () =>
        (await screenText(page)).includes(`length ${PASSWORD.length}`),
      );
      await page.getByRole("button", { name: "Input history" }).click();
      await page
        .getByRole("row", { name: /driver.*not echoed/ })
        .first()
        .waitFor();
      const [recording] = await Promise.all([page.waitForEvent("download"), selectAction(page, "Download recording")]);
      const shown = [await page.content(), readFileSync(await recording.path(), "utf8"), await screenText(page)];
      await page.getByRole("button", { name: "Hand back" }).click();
      const { code, stdout, stderr } = await run.ended;
      assert.equal(code, 0, stderr);
      assert.match(toolOutputs(mock.requests.at(-1)?.body ?? {}).at(-1) ?? "", /User: drove/);
      const handoff = mock.requests.map(({ body }) => JSON.stringify(body));
      const everything = [...shown, stdout, stderr, server.stderr, ...handoff, everythingBelow(scratch.path)].join(
        "\n",
      );
      assert.ok(!everything.includes(PASSWORD), "the password was seen");
      assert.ok(readFileSync(audit, "utf8").includes("attach"));
      assert.deepEqual(problems, []);
      await page.close();
    } finally {
      run.child.kill();
      await run.ended;
      await mock.close();
    }
  });
});

/** Returns the contents of all files below a directory. */
function everythingBelow(directory: string): string {
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .map((name) => join(directory, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => readFileSync(path, "latin1"))
    .join("\n");
}
