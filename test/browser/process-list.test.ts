/** The list of processes in a real browser on a real server. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { assertNoAxeFaults, openBrowser, SIZES, sectionLink, serveConsole, signedIn } from "./browser.ts";
import { startSampleProcesses } from "./sample-data.ts";

const MANY_PROCESSES = 500;
/** Polls of the list during which mutations are counted. */
const COUNTED_POLLS = 4;

describe("the list of processes", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  let console: Awaited<ReturnType<typeof serveConsole>>;
  let page: Page;
  let problems: string[];
  before(async () => {
    opened = await openBrowser();
    console = await serveConsole();
    ({ page, problems } = await signedIn(opened.browser, console.loginUrl));
  });
  after(async () => {
    assert.deepEqual(problems, []);
    await opened[Symbol.asyncDispose]();
    await console.server[Symbol.asyncDispose]();
  });
  const row = (name: RegExp | string) => page.getByRole("row", { name });
  const titles = () => page.locator("td.command").allTextContents();

  test("shows every state as a badge, usage and output rate, filters, sorts, and terminates a selection", async () => {
    using scratch = scratchDirectory();
    await using samples = await startSampleProcesses(console.server.url, scratch.path);
    const handle = (command: string) => samples.handles.get(command) ?? assert.fail(command);
    await sectionLink(page, "Processes").click();
    await page.getByText("5 running").waitFor();
    await row(/npm run dev running .*\d+\.\d % .*[\d.]+ MiB/).waitFor();
    await row(/pytest .* [1-9]\d* B\/s/).waitFor();
    await row(/deploy staging waiting for a password/).waitFor();
    await row(/migrate --all waiting for input/).waitFor();
    assert.equal(await row("make all").count(), 0);
    // A column without values is hidden.
    const headers = () => page.getByRole("columnheader").allTextContents();
    assert.deepEqual(await headers(), ["", "Name", "Command", "State", "Owner", "Age", "CPU", "Memory", "Output"]);
    await page.getByLabel("Show ended processes").check();
    await row(/make all exited 0/).waitFor();
    await row(/eslint src\/ exited 3/).waitFor();
    await row(/worker --queue mail killed \(killed by SIGKILL\)/).waitFor();
    await row(/import-orders timed out/).waitFor();
    await row(/export-orders killed \(terminated by the limit outputBytes\) .* 48\.8 KiB of output/).waitFor();
    assert.ok((await headers()).includes("Limits"));
    const restored = page.viewportSize() ?? SIZES[0];
    for (const size of SIZES) {
      await page.setViewportSize(size);
      // The limits leave space for the command, and a field without a value has no title.
      const box = await page.locator("td.command", { hasText: "export-orders" }).boundingBox();
      assert.ok(box && box.width > 100, `the command is ${box?.width} px wide at ${size.width} px`);
      await until(
        "no title without a value",
        async () => (await page.locator("td.cpu:empty:visible").count()) === 0 || size.width > 640,
      );
    }
    await page.setViewportSize(restored);

    const filter = page.getByLabel("Filter processes");
    await filter.fill("exited");
    await until(
      "only processes with an exit code",
      async () => (await titles()).sort().join() === "eslint src/,make all",
    );
    await filter.fill("app=shop running");
    await until("the running process with the label", async () => (await titles()).join() === "npm run dev");
    await page.getByRole("link", { name: "dev-server" }).waitFor();
    await filter.fill("no such process");
    await page.getByText("No process matches").waitFor();
    await filter.fill("");
    await page.getByRole("button", { name: "CPU" }).click();
    assert.equal(await page.getByRole("columnheader", { name: "CPU" }).getAttribute("aria-sort"), "descending");
    await until("the busy process to be first", async () => (await titles())[0] === "ffmpeg -i talk.mov talk.mp4");
    await page.getByRole("button", { name: "Name" }).click();
    await page.getByRole("button", { name: "Age" }).click();
    await page.getByRole("button", { name: "Age" }).click();

    // A click on the row opens the process, and the section stays highlighted.
    await page.getByRole("cell", { name: "deploy staging" }).click();
    await page.waitForURL(new RegExp(handle("deploy staging")));
    assert.equal(await sectionLink(page, "Processes").getAttribute("aria-current"), "true");
    await page.goBack();

    // A confirmation names the processes; Cancel changes nothing.
    await page.getByLabel("Select deploy").check();
    await page.getByLabel(`Select ${handle("migrate --all")}`).check();
    const terminate = page.getByRole("button", { name: "Terminate 2 processes…" });
    await terminate.click();
    const dialog = page.getByRole("dialog", { name: "Terminate 2 processes?" });
    await dialog
      .getByText(`deploy, ${handle("migrate --all")}`)
      .or(dialog.getByText(`${handle("migrate --all")}, deploy`))
      .waitFor();
    await assertNoAxeFaults(page, "the confirmation");
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("5 running").waitFor();
    await terminate.click();
    await dialog.getByRole("button", { name: "Terminate" }).click();
    await page.getByText("Terminated 2 processes.").waitFor();
    await row(/deploy staging killed \(terminated\)/).waitFor();
    await page.getByText("3 running").waitFor();
    await page.getByLabel("Show ended processes").uncheck();
  });

  test("updates five hundred processes in place: no row is added, removed or moved, and idle rows do not change", async () => {
    await using client = await NodeExecServerClient.connectWebSocket({ url: console.server.url });
    const start = (processId: string, argv: string[]) =>
      client.start({ processId, argv, cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty: false });
    await Promise.all(
      Array.from({ length: MANY_PROCESSES - 1 }, (_, index) => start(`idle-${index}`, ["sleep", "1000"])),
    );
    const busy = await start("busy", ["sh", "-c", "while :; do echo output; sleep 0.1; done"]);
    await sectionLink(page, "Processes").click();
    await page.getByText(`${MANY_PROCESSES} running`).waitFor();
    await page
      .locator("tr", { hasText: "echo output" })
      .getByText(/^[1-9]\d* B\/s/)
      .waitFor();
    // Counts the changes of the table and, by the busy row, the polls.
    await page.evaluate(`(() => {
      const counted = { nodes: 0, rows: new Set(), cells: new Set(), polls: 0 };
      window.counted = counted;
      const table = document.querySelector("table.processes tbody");
      new MutationObserver((mutations) => {
        let isPoll = false;
        for (const { type, target, addedNodes, removedNodes } of mutations) {
          const element = target instanceof Element ? target : target.parentElement;
          if (type === "childList" && element.closest("tr") === null) counted.nodes += addedNodes.length + removedNodes.length;
          const row = element.closest("tr");
          if (row?.textContent.includes("echo output")) isPoll ||= element.closest("td.rate") !== null;
          else if (row) { counted.rows.add(row); counted.cells.add(element.closest("td")?.className); }
        }
        if (isPoll) counted.polls++;
      }).observe(table, { subtree: true, childList: true, characterData: true, attributes: true });
    })()`);
    await until("some polls", async () => Number(await page.evaluate("window.counted.polls")) >= COUNTED_POLLS);
    const counted = (await page.evaluate("({ nodes: counted.nodes, cells: [...counted.cells] })")) as {
      nodes: number;
      cells: string[];
    };
    assert.equal(counted.nodes, 0);
    // The age changes each second in the first minute; CPU and memory may, because a sleeping process is measured too.
    const allowed = ["age number", "cpu number", "memory number", "rate number"];
    assert.deepEqual(
      counted.cells.filter((cell) => !allowed.includes(cell)),
      [],
    );
    await page.locator(`a[href="#/process/${busy.handle}"]`).waitFor();
  });
});
