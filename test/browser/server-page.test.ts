/** The server page and the frame of the console in a real browser on a real server. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { ServeChild } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { assertNoAxeFaults, loginUrlOf, openBrowser, SIZES, sectionLink, serveConsole, signedIn } from "./browser.ts";

const CHARTS = [
  "Memory of the server",
  "CPU of the server",
  "Processes",
  "Connections",
  "Output rate",
  "Refusals per minute",
];

describe("the server page", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    opened = await openBrowser();
  });
  after(async () => {
    await opened[Symbol.asyncDispose]();
  });

  test("shows charts with their latest value, the value below the pointer, and raw metrics in a fold", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    await page.setViewportSize(SIZES[0]);
    await sectionLink(page, "Server").click();
    await page.getByText("healthy").waitFor();
    const chart = (name: string) => page.getByRole("figure", { name });
    for (const name of CHARTS) await until(`a value of ${name}`, async () => /\d/.test(await caption(page, name)));
    assert.match(await caption(page, "Memory of the server"), /[\d.]+ MiB$/);
    assert.match(await caption(page, "Processes"), /0$/);
    await chart("Memory of the server")
      .locator(".u-over")
      .hover({ position: { x: 2, y: 20 } });
    await until("the time of the sample below the pointer", async () =>
      /server\d+:\d\d:\d\d.*MiB$/.test(await caption(page, "Memory of the server")),
    );
    assert.equal(await page.getByText("procwire_processes").count(), 0);
    await page.getByText("Raw metrics").click();
    await page.getByRole("cell", { name: "procwire_processes", exact: true }).waitFor();
    // The samples continue on other pages.
    await page.setViewportSize(SIZES[0]);
    await sectionLink(page, "Processes").click();
    await page.getByText("No processes yet").waitFor();
    await sectionLink(page, "Server").click();
    await chart("Memory of the server")
      .locator(".u-over")
      .hover({ position: { x: 2, y: 20 } });
    await until("the first sample", async () => /\d+:\d\d:\d\d/.test(await caption(page, "Memory of the server")));

    // An unknown route has its own page.
    await page.goto(`${new URL(page.url()).origin}/#/no/such/page`);
    await page.getByRole("heading", { name: "Page not found" }).waitFor();
    assert.equal(await page.locator("nav a[aria-current]").count(), 0);
    await assertNoAxeFaults(page, "an unknown route");
    await page.getByRole("link", { name: "Show all processes" }).click();
    await page.getByRole("heading", { name: "Processes" }).waitFor();
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("lists degraded features first, each with its remedy", async () => {
    // Without the launcher there is no watchdog.
    const server = new ServeChild(["--listen", "ws://127.0.0.1:0", "--web"], {
      command: [process.execPath, "src/cli/procwire.ts", "serve"],
    });
    await using _ = server;
    await server.listening();
    const { page } = await signedIn(opened.browser, loginUrlOf(server));
    await sectionLink(page, "Server").click();
    const degraded = page.getByRole("region", { name: "Degraded features" });
    await degraded.getByText("watchdog").first().waitFor();
    await degraded.getByText(/restart the server|procwire doctor/).waitFor();
    await page.getByText(/metrics are disabled; start the server with `--metrics`/).waitFor();
    await assertNoAxeFaults(page, "the server page with a degraded feature");
    await page.close();
  });
});

async function caption(page: Page, chart: string): Promise<string> {
  return (await page.getByRole("figure", { name: chart }).locator("figcaption").textContent()) ?? "";
}
