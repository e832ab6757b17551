/** The rows of a job: a table on wide pages, cards on a phone. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import {
  assertNoAxeFaults,
  assertNoHorizontalScrolling,
  openBrowser,
  SIZES,
  serveConsole,
  signedIn,
} from "./browser.ts";
import { createSampleJobs } from "./sample-data.ts";

test("the rows of a job have the same fields as a table and as cards", { timeout: 300_000 }, async () => {
  using scratch = scratchDirectory();
  await using jobs = await createSampleJobs(join(scratch.path, "jobs"));
  const { server, loginUrl } = await serveConsole("--jobs", join(scratch.path, "jobs"));
  await using _ = server;
  await using opened = await openBrowser();
  const { page, problems } = await signedIn(opened.browser, loginUrl);
  for (const size of SIZES) {
    const isPhone = size === SIZES[2];
    await page.setViewportSize(size);
    await page.goto(new URL(`#/job/${jobs.completed}`, loginUrl).href);
    const rows = page.getByRole("region", { name: "Rows of the job" });
    const row = rows.getByRole("row").filter({ has: page.getByRole("link", { name: "row-2", exact: true }) });
    await row.waitFor();
    const attempts = rows.getByRole("columnheader", { name: "Attempts" });
    await until("the layout for the size", async () => (await attempts.isVisible()) === !isPhone);
    await row.scrollIntoViewIfNeeded();
    for (const text of ["row-2", "completed", "Where is my invoice?", "customer 1001", "account", "876", "$0.0012"])
      assert.ok(await row.getByText(text).isVisible(), `${text} at ${size.width}`);
    assert.match(await row.innerText(), /\b\d+(\.\d\d s|0 ms)/);
    const cards = await measureRows(page);
    assert.deepEqual(cards.heights.length, 1, `all rows have one height at ${size.width}: ${cards.heights.join(", ")}`);
    assert.deepEqual(cards.titles, isPhone ? ["subject", "customer", "Result", "Attempts", "Tokens"] : []);
    assert.deepEqual(isPhone ? cards.outside : [], [], `fields outside of their card at ${size.width}`);
    await assertNoAxeFaults(page, `the rows at ${size.width}`);
    await assertNoHorizontalScrolling(page);
    assert.equal(await rows.evaluate((it) => it.scrollWidth > it.clientWidth), false, "all columns fit");

    await page.getByRole("button", { name: "Download results" }).click();
    const menu = await page.getByRole("menu").boundingBox();
    assert.ok(menu && menu.x >= 0 && menu.x + menu.width <= size.width, `the menu begins at ${menu?.x} px`);
    await page.keyboard.press("Escape");

    // The keyboard reaches each row; a click anywhere on it opens the row too.
    await row.getByRole("link").focus();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate("document.activeElement.textContent"), "row-3");
    await page.keyboard.press("Enter");
    const drawer = page.getByRole("dialog", { name: "Row row-3" });
    await drawer.waitFor();
    await page.keyboard.press("Escape");
    await drawer.waitFor({ state: "detached" });
    await row.getByText("Where is my invoice?").click();
    await page.getByRole("dialog", { name: "Row row-2" }).getByText("Output of exec_command").first().waitFor();
    await page.getByRole("button", { name: "Close" }).click();

    await page.getByLabel("Text").fill("no such text");
    await rows.getByText("No row matches the filter.").waitFor();
    await assertNoAxeFaults(page, `no row at ${size.width}`);
    await page.getByLabel("Text").fill("invoice");
    await page.getByText("48 rows", { exact: true }).waitFor();
    await page.getByLabel("Text").fill("");
    await until("all rows", () => page.getByText("240 rows", { exact: true }).isVisible());
  }
  assert.deepEqual(problems, []);
  await page.close();
});

interface RowMeasurements {
  heights: number[];
  /** Titles that the fields of a card show. */
  titles: string[];
  /** Texts of fields that are not completely inside of their row. */
  outside: string[];
}

async function measureRows(page: Page): Promise<RowMeasurements> {
  return page.evaluate(`(() => {
    const rows = [...document.querySelectorAll(".rows tr.clickable")];
    const cells = [...rows[0].cells];
    const title = (cell) => getComputedStyle(cell, "::before").content;
    return {
      heights: [...new Set(rows.map((row) => row.getBoundingClientRect().height))],
      titles: cells.map(title).filter((text) => !["none", "normal"].includes(text)).map((text) => JSON.parse(text)),
      outside: rows.flatMap((row) => {
        const card = row.getBoundingClientRect();
        return [...row.cells].filter((cell) => {
          const { left, right, top, bottom } = cell.getBoundingClientRect();
          return left < card.left || right > card.right || top < card.top || bottom > card.bottom;
        }).map((cell) => row.cells[0].textContent + ": " + cell.textContent);
      }),
    };
  })()`);
}
