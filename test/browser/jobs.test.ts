/** The pages of fan-out jobs in a real browser on a real server. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { SqliteStore } from "../../src/fanout/ledger/sqlite/sqlite-store.ts";
import {
  answer,
  functionCall,
  report,
  says,
  startMockResponses,
  toolOutputs,
} from "../support/models/mock-responses.ts";
import { type CliRun, startCli } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import {
  assertNoAxeFaults,
  keepScreenshot,
  openBrowser,
  SIZES,
  screenText,
  sectionLink,
  serveConsole,
  serveConsoleIn,
  signedIn,
} from "./browser.ts";

/** Number of rows that a run with one agent per row finishes in a few seconds. */
const RUN_ROWS = 600;
const WATCHED_ROWS = 10_000;
const LARGE_ROWS = 100_000;

/** Waits until the legend of the progress bar contains these counts. */
async function legend(page: Page, ...counts: string[]): Promise<void> {
  for (const count of counts) await page.locator(".legend").getByText(count, { exact: true }).waitFor();
}

describe("the console's jobs", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    opened = await openBrowser();
  });
  after(async () => {
    await opened[Symbol.asyncDispose]();
  });

  test("a user follows a real run to its end and retries its failed rows", async () => {
    using scratch = scratchDirectory();
    const directory = join(scratch.path, "ledgers");
    let failing = true;
    const seenHalf = Promise.withResolvers<void>();
    const mock = await startMockResponses(async (request) => {
      const itemId = request.item?.itemId ?? "";
      if (Number(itemId.slice("row-".length)) > RUN_ROWS / 2) await seenHalf.promise;
      return failing && itemId.endsWith("77") ? says("<img src=x onerror=alert(1)>") : report(request);
    });
    const { server, loginUrl } = await serveConsoleIn({ OPENAI_BASE_URL: mock.url }, "--jobs", directory);
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    const runs: CliRun[] = [];
    try {
      await sectionLink(page, "Jobs").click();
      await page.getByText("No jobs").waitFor();
      await assertNoAxeFaults(page, "the list of jobs without any");
      await assertOnePoll(page);
      const table = Array.from({ length: RUN_ROWS }, (_, index) => `cat_${index + 1}\n`).join("");
      writeFileSync(join(scratch.path, "cats.csv"), `name\n${table}`);
      const cli = (...args: string[]) => {
        const env = { OPENAI_BASE_URL: mock.url, PROCWIRE_JOBS: directory };
        const run = startCli(args, { cwd: scratch.path, env });
        runs.push(run);
        return run;
      };
      const fanout = ["fanout", "cats.csv", "--instruction", "about {name}", "--output", "out.csv"];
      const run = cli(...fanout, "--max-attempts", "1", "--concurrency", "8", "--model", "gpt-5");
      await page.getByRole("row", { name: /about \{name\} .* gpt-5 .* running/ }).waitFor();
      await page.locator("tbody a").first().click();
      await page.getByRole("heading", { name: "about {name}" }).waitFor();
      const done = async () =>
        Number(await page.getByRole("progressbar", { name: "Rows done" }).getAttribute("aria-valuenow"));
      await until("half of the rows to finish", async () => (await done()) === RUN_ROWS / 2);
      await until("the rate is shown", async () => (await page.getByText("Concurrent calls").count()) === 1);
      assert.match((await page.locator("dl.tiles").textContent()) ?? "", /Rate\d+(\.\d)? rows\/s/);
      seenHalf.resolve();
      assert.equal((await run.ended).code, 1);
      await page.getByText("completed with errors").waitFor();
      assert.equal(await done(), RUN_ROWS);
      await legend(page, "600 of 600 rows", "6 failed", "0 running", "0 pending");

      // The drawer of a row shows its whole conversation and executes none of it as code.
      await page.getByRole("combobox", { name: "Failure" }).selectOption("no_report");
      await page.getByText("6 rows", { exact: true }).waitFor();
      await page.getByRole("cell", { name: "cat_77", exact: true }).click();
      const drawer = page.getByRole("dialog", { name: "Row row-77" });
      await drawer.getByText("<img src=x onerror=alert(1)>").first().waitFor();
      await drawer.getByText("Prompt and instructions").click();
      await drawer.getByText("about cat_77").first().waitFor();
      assert.match((await drawer.locator("dl").textContent()) ?? "", /Duration(\d+0 ms|\d+\.\d\d s)/);
      assert.equal(await page.locator("img").count(), 0);
      await page.keyboard.press("Escape");
      await drawer.waitFor({ state: "detached" });

      const [file] = await Promise.all([
        page.waitForEvent("download"),
        (async () => {
          await page.getByRole("button", { name: "Download results" }).click();
          await page.getByRole("menuitem", { name: "Results as CSV" }).click();
        })(),
      ]);
      assert.equal(readFileSync(await file.path(), "utf8"), readFileSync(join(scratch.path, "out.csv"), "utf8"));

      // The confirmation names the cost; the retry runs as a process of the server.
      failing = false;
      await page.getByRole("button", { name: "Retry… no result" }).click();
      const dialog = page.getByRole("dialog", { name: "Retry 6 rows?" });
      await dialog.getByText(/Expected cost: about \$[\d.]+ \(about \d+ tokens of gpt-5\)/).waitFor();
      await assertNoAxeFaults(page, "the confirmation of a retry");
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await legend(page, "6 failed");
      await page.getByRole("button", { name: "Retry 6 failed…" }).click();
      await dialog.getByRole("button", { name: "Retry" }).click();
      await page.getByText(/6 rows pending again; they run in process \w{12}/).waitFor();
      await legend(page, "600 of 600 rows", "0 failed", "0 running", "0 pending");
      await page.getByText("completed", { exact: true }).first().waitFor();
      assert.deepEqual(problems, []);
    } finally {
      seenHalf.resolve();
      for (const { child, ended } of runs) {
        child.kill();
        await ended;
      }
      await page.close();
      await mock.close();
    }
  });

  test("a row whose agent runs a command links to its terminal", async () => {
    using scratch = scratchDirectory();
    const home = join(scratch.path, "home");
    const { server, loginUrl } = await serveConsole("--jobs", join(home, "jobs"));
    await using _ = server;
    const mock = await startMockResponses((request) =>
      toolOutputs(request.body).length === 0
        ? answer(
            functionCall("call-1", "exec_command", {
              cmd: "echo of''the row; read -r _",
              tty: true,
              yield_time_ms: 30_000,
            }),
          )
        : report(request),
    );
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    writeFileSync(join(scratch.path, "cats.csv"), "name\ncat_1\n");
    const fanout = ["fanout", "cats.csv", "--instruction", "about {name}", "--output", "out.csv", "--tools", "exec"];
    const run = startCli([...fanout, "--connect", server.url, "--sandbox", "none"], {
      cwd: scratch.path,
      env: { OPENAI_BASE_URL: mock.url, PROCWIRE_HOME: home },
    });
    try {
      await sectionLink(page, "Jobs").click();
      await page.locator("tbody a").first().click();
      await page.getByRole("link", { name: "row-1", exact: true }).click();
      await page.getByRole("heading", { name: "Processes" }).waitFor();
      await page.getByRole("dialog").getByRole("listitem").filter({ hasText: "running" }).getByRole("link").click();
      await until("its output", async () => /^ofthe row$/m.test(await screenText(page)));
      assert.deepEqual(problems, []);
    } finally {
      run.child.kill();
      await run.ended;
      await page.close();
      await mock.close();
    }
  });

  test("the page of a job with ten thousand rows updates while another process finishes rows at full speed", async () => {
    using scratch = scratchDirectory();
    const jobId = await makeJob(scratch.path, WATCHED_ROWS);
    const { server, loginUrl } = await serveConsole("--jobs", scratch.path);
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    await page.goto(`${new URL(page.url()).origin}/#/job/${jobId}`);
    const done = page.getByRole("progressbar", { name: "Rows done" });
    await done.waitFor();
    const seen: number[] = [];
    // The writer waits for the page four times, so that a page on a busy host also sees the progress.
    const worker = startWriter(scratch.path, jobId, async (finished) => {
      if (finished % (WATCHED_ROWS / 4) === 0)
        await until(`${finished} rows on the page`, () => (seen.at(-1) ?? 0) >= finished);
    });
    await until("every row is seen to be done", async () => {
      seen.push(Number(await done.getAttribute("aria-valuenow")));
      return seen.at(-1) === WATCHED_ROWS;
    });
    await worker;
    assert.ok(
      seen.every((rows, index) => rows >= (seen[index - 1] ?? 0)),
      "it never goes back",
    );
    assert.ok(new Set(seen).size > 3, `it is seen at ${[...new Set(seen)].join(", ")}`);
    await legend(page, "10,000 of 10,000 rows", "100 failed", "0 running", "0 pending");
    await page.getByText("completed with errors").waitFor();
    // The page shows the final state of its rows.
    await page.getByText("10,000 rows", { exact: true }).waitFor();
    await until("all visible rows to finish", async () => {
      const text = await page.getByRole("region", { name: "Rows of the job" }).textContent();
      return !/pending|running/.test(text ?? "pending");
    });
    await keepScreenshot(page, "job");
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("a user scrolls and searches a hundred thousand rows, of which the page holds few at a time", async () => {
    using scratch = scratchDirectory();
    await makeJob(scratch.path, LARGE_ROWS);
    const { server, loginUrl } = await serveConsole("--jobs", scratch.path);
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    await sectionLink(page, "Jobs").click();
    await page.locator("tbody a").first().waitFor();
    await assertNoAxeFaults(page, "the list of jobs");
    await page.locator("tbody a").first().click();
    await page.getByText("100,000 rows", { exact: true }).waitFor();
    const rows = page.getByRole("region", { name: "Rows of the job" });
    assert.equal(await rows.getByRole("table").getAttribute("aria-rowcount"), `${LARGE_ROWS + 1}`);
    for (const size of SIZES) {
      await page.setViewportSize(size);
      // With the keyboard only.
      await rows.focus();
      await page.keyboard.press("End");
      await page.getByRole("link", { name: `row-${LARGE_ROWS}`, exact: true }).waitFor();
      const drawn = await rows.locator("tbody tr").count();
      assert.ok(drawn < 200, `${drawn} rows are drawn`);
      await page.evaluate(`(() => {
        const rows = document.querySelector(".rows");
        rows.scrollTop = 50000 * rows.querySelector("tr.clickable").getBoundingClientRect().height;
      })()`);
      await page.getByRole("link", { name: "row-50001", exact: true }).waitFor();
    }
    // A turned phone shows the same rows.
    await page.setViewportSize({ width: SIZES[2].height, height: SIZES[2].width });
    await until("the table of a wide page", () => rows.getByRole("columnheader", { name: "Attempts" }).isVisible());
    await until("the row at the top", async () => (await firstVisibleRow(page)) === "row-50001");
    await page.setViewportSize(SIZES[0]);
    await page.getByLabel("Text").fill("cell 77777 ");
    await page.getByText("1 row", { exact: true }).waitFor();
    await page.getByRole("link", { name: "row-77777", exact: true }).waitFor();
    await assertNoAxeFaults(page, "a job");
    await page.getByRole("link", { name: "row-77777", exact: true }).click();
    await page.getByRole("dialog", { name: "Row row-77777" }).getByText("cell 77777 of many").first().waitFor();
    await assertNoAxeFaults(page, "a row");
    await page.setViewportSize({ width: 390, height: 800 });
    for (const back of [false, true]) {
      if (back) await page.goBack();
      if (back) await rows.waitFor();
      const overflow = await page.evaluate("document.documentElement.scrollWidth > innerWidth");
      assert.equal(overflow, false, "the page is wider than a phone");
    }
    await page.setViewportSize({ width: 1100, height: 700 });
    assert.deepEqual(problems, []);
    await page.close();
  });
});

/** Asserts that a page that becomes visible repeatedly polls once, not once for each time. */
async function assertOnePoll(page: Page): Promise<void> {
  let polls = 0;
  const onRequest = (request: { url(): string }) => {
    if (request.url().endsWith("/api/jobs")) polls++;
  };
  page.on("request", onRequest);
  const answered = page.waitForResponse(/\/api\/jobs$/);
  await page.evaluate("for (let i = 0; i < 20; i++) document.dispatchEvent(new Event('visibilitychange'))");
  await answered;
  page.off("request", onRequest);
  assert.ok(polls <= 2, `${polls} polls`);
}

/** Returns the id of the first row that is completely visible in the list of rows. */
async function firstVisibleRow(page: Page): Promise<string> {
  return page.evaluate(`(() => {
    const rows = document.querySelector(".rows");
    const top = Math.max(rows.getBoundingClientRect().top, rows.querySelector("th").getBoundingClientRect().bottom);
    const shown = [...rows.querySelectorAll("tr.clickable")].find((row) => row.getBoundingClientRect().bottom > top + 1);
    return shown?.querySelector("a").textContent ?? "";
  })()`);
}

async function makeJob(home: string, count: number): Promise<string> {
  const rows = async function* () {
    for (let rowIndex = 0; rowIndex < count; rowIndex++) {
      const row = { name: `cell ${rowIndex + 1} of many`, note: "as long as cells are. ".repeat(5) };
      yield { itemId: `row-${rowIndex + 1}`, rowIndex, sourceId: null, row };
    }
  };
  const { id } = await new SqliteStore(home).create(
    {
      id: crypto.randomUUID(),
      key: "key",
      task: {
        instruction: "see {name}",
        schema: null,
        model: "gpt-5",
        reasoningEffort: null,
        tools: "none",
        idColumn: null,
      },
      settings: { maxAttempts: 3, rowTimeoutMs: 1, rowLimit: null },
      inputPath: "many.csv",
      outputPath: "out.csv",
      createdAtMs: Date.now(),
    },
    rows(),
    () => ({ headers: ["name", "note"], isReading: false }),
  );
  return id;
}

/** Finishes every row of a job like its coordinator, without a model. Calls `onFinished` after each batch of rows. */
async function startWriter(home: string, jobId: string, onFinished: (rows: number) => Promise<void>): Promise<void> {
  await using ledger = await new SqliteStore(home).open(jobId);
  assert.ok(ledger && (await ledger.acquireRun()));
  await ledger.setStatus("running", ["pending"]);
  const usage = { inputTokens: 800, cachedInputTokens: 400, outputTokens: 60, reasoningOutputTokens: 0 };
  for (let finished = 0; ; ) {
    const leases = await ledger.lease(100);
    if (leases.length === 0) break;
    finished += leases.length;
    for (const lease of leases) {
      if (lease.item.itemId.endsWith("77"))
        await ledger.fail(lease, { errorClass: "timeout", message: "too slow", usage });
      else await ledger.complete(lease, { result: '{"ok":true}', usage, stop: false });
    }
    // Yields, because this process also drives the browser.
    await new Promise((resolve) => setTimeout(resolve, 20));
    await onFinished(finished);
  }
  await ledger.setStatus("completed_with_errors", ["running"]);
}
