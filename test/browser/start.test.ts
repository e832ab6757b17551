/** `npm start`, as a user types it in a fresh clone, and the page that it opens. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { openBrowser, screenText, sectionLink, signedIn, startOnPage } from "./browser.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

describe("npm start", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    opened = await openBrowser();
  });
  after(async () => {
    await opened[Symbol.asyncDispose]();
  });

  test("prints an address that answers, and a shell is a few clicks away", async (context) => {
    using home = scratchDirectory();
    const beganMs = performance.now();
    const server = new ServeChild([], {
      command: ["npm", "start", "--silent"],
      cwd: ROOT,
      env: { PROCWIRE_HOME: home.path },
    });
    await using _ = server;
    server.child.stdout?.resume();
    const address = () => /http:\/\/127\.0\.0\.1:\d+\/#token=\S+/.exec(server.stderr)?.[0];
    await until("an address", () => address() !== undefined, server.exited);
    const url = address() ?? "";
    const page = await fetch(url);
    assert.equal(page.status, 200);
    assert.match(await page.text(), /<title>procwire<\/title>/);
    context.diagnostic(`npm start answered after ${Math.round(performance.now() - beganMs)} ms`);
    const { page: console, problems } = await signedIn(opened.browser, url);
    await startOnPage(console, "echo it''works; sleep 100");
    await until("a terminal", async () => /^itworks$/m.test(await screenText(console)));
    await sectionLink(console, "Jobs").click();
    await console.getByText("No jobs").waitFor();
    assert.deepEqual(problems, []);
    await console.close();
  });
});
