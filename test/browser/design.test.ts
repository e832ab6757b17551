/** Every page of the console in a real browser, in three sizes and both themes. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import {
  assertDocumentFits,
  assertNoAxeFaults,
  assertNoHorizontalScrolling,
  openBrowser,
  SIZES,
  serveConsole,
  signedIn,
} from "./browser.ts";
import { createSampleJobs, startSampleProcesses } from "./sample-data.ts";

test("every page is accessible, fits a phone, and follows one design", { timeout: 600_000 }, async () => {
  using scratch = scratchDirectory();
  await using jobs = await createSampleJobs(join(scratch.path, "jobs"));
  const { server, loginUrl } = await serveConsole("--jobs", join(scratch.path, "jobs"));
  await using _ = server;
  await using processes = await startSampleProcesses(server.url, scratch.path);
  await using opened = await openBrowser();
  const { page, problems } = await signedIn(opened.browser, loginUrl);
  const requests = new Set<string>();
  page.on("request", (request) => requests.add(new URL(request.url()).host));
  const pages: [hash: string, section: "Processes" | "Jobs" | "Server" | null, isLoaded: () => Promise<void>][] = [
    ["#/processes", "Processes", () => page.getByText("npm run dev").waitFor()],
    [
      `#/process/${processes.handles.get("npm run dev")}`,
      "Processes",
      () => page.getByText("Local").first().waitFor({ state: "attached" }),
    ],
    ["#/jobs", "Jobs", () => page.getByText("Classify the support ticket").waitFor()],
    [`#/job/${jobs.running}`, "Jobs", () => page.getByRole("link", { name: "row-1", exact: true }).waitFor()],
    [`#/job/${jobs.running}/row-5`, "Jobs", () => page.getByText("Output of exec_command").first().waitFor()],
    ["#/server", "Server", () => page.getByText("Memory of the server").waitFor()],
    ["#/devices", null, () => page.getByText("(this browser)").waitFor()],
    ["#/access", null, () => page.getByText("(this browser)").waitFor()],
    ["#/process/aaaaaaaaaaaa", "Processes", () => page.getByText("unknown handle aaaaaaaaaaaa").waitFor()],
    ["#/no/such/page", null, () => page.getByText("Page not found").waitFor()],
  ];
  for (const size of SIZES) {
    await page.setViewportSize(size);
    for (const [hash, section, isLoaded] of pages) {
      await page.goto(new URL(hash, loginUrl).href);
      await isLoaded();
      const where = `${hash} at ${size.width}`;
      await assertNoAxeFaults(page, where);
      await assertNoHorizontalScrolling(page);
      await assertDocumentFits(page);
      await assertDesign(page, where);
      const current = await page.locator("nav a[aria-current]:not(.breadcrumb *)").allTextContents();
      assert.deepEqual(current, section === null ? [] : [section], where);
    }
  }
  // A list of a phone is made of cards.
  await page.goto(new URL("#/devices", loginUrl).href);
  const device = page.getByRole("row").filter({ hasText: "(this browser)" });
  for (const text of ["Signed in", "Last used", "Expires"])
    assert.equal(await page.getByRole("columnheader", { name: text }).isVisible(), false);
  const right = await device.getByRole("button", { name: "Sign out" }).boundingBox();
  assert.ok(right && right.x + right.width <= SIZES[2].width, "the action of a device is visible");
  // A sub-page links to the page above it.
  await page.setViewportSize(SIZES[0]);
  await page.goto(new URL(`#/job/${jobs.running}`, loginUrl).href);
  await page.getByRole("navigation", { name: "Breadcrumb" }).getByRole("link", { name: "Jobs" }).click();
  await page.getByRole("heading", { name: "Jobs" }).waitFor();
  await page.goto(new URL("#/process/aaaaaaaaaaaa", loginUrl).href);
  await page.getByRole("navigation", { name: "Breadcrumb" }).getByRole("link", { name: "Processes" }).click();
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  await page.goto(new URL(`#/process/${processes.handles.get("npm run dev")}`, loginUrl).href);
  await page.getByRole("navigation", { name: "Breadcrumb" }).getByRole("link", { name: "Processes" }).click();
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  assert.deepEqual([...requests], [new URL(loginUrl).host]);
  assert.deepEqual(problems, []);
  await page.close();
});

/** Asserts one primary action, visibly disabled controls, cells that fit, and numbers that are aligned to the right. */
async function assertDesign(page: Page, where: string): Promise<void> {
  // A column such as CPU is filled by the second sample of the server.
  await until(`${where}: no empty column`, async () => (await designOf(page)).emptyColumns.length === 0);
  const found = await designOf(page);
  assert.ok(found.primary.length <= 1, `${where}: primary actions ${found.primary.join(", ")}`);
  assert.deepEqual(found.enabledLook, [], `${where}: disabled controls that look enabled`);
  assert.deepEqual(found.overflowing, [], `${where}: cells that cover the next one`);
  // Cards have no columns.
  if ((page.viewportSize()?.width ?? 0) > 640)
    assert.deepEqual(found.leftNumbers, [], `${where}: left-aligned numbers`);
}

interface Design {
  primary: string[];
  enabledLook: string[];
  leftNumbers: string[];
  overflowing: string[];
  emptyColumns: string[];
}

async function designOf(page: Page): Promise<Design> {
  return (await page.evaluate(`(() => {
    const isVisible = (element) => element.checkVisibility();
    const all = (selector) => [...document.querySelectorAll(selector)].filter(isVisible);
    const name = (element) => element.textContent.trim();
    return {
      primary: all("button.primary").map(name),
      enabledLook: all("button:disabled").filter((it) => getComputedStyle(it).cursor !== "not-allowed").map(name),
      leftNumbers: all(".number").filter((it) => getComputedStyle(it).textAlign !== "right").map(name),
      overflowing: all("td").filter((it) => it.scrollWidth > it.clientWidth && getComputedStyle(it).textOverflow !== "ellipsis").map(name),
      emptyColumns: all("table").flatMap((table) => [...table.querySelectorAll("thead th")].filter((th, column) => {
        const cells = [...table.querySelectorAll("tbody tr")].map((row) => row.cells[column]).filter(Boolean);
        return isVisible(th) && name(th) !== "" && cells.length > 0 && cells.every((cell) => name(cell) === "" && cell.children.length === 0);
      }).map(name)),
    };
  })()`)) as Design;
}
