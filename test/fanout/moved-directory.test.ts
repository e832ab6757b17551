import assert from "node:assert/strict";
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { type MockResponses, report, startMockResponses } from "../support/models/mock-responses.ts";
import { runCli } from "../support/servers/run-cli.ts";

/** A directory that is used under one name, then under another. */
async function withDirectory(
  work: (world: {
    mock: MockResponses;
    directory: string;
    moved: string;
    procwire(cwd: string, ...words: string[]): Promise<{ stdout: string; stderr: string }>;
  }) => Promise<void>,
): Promise<void> {
  const home = await mkdtemp(path.join(tmpdir(), "procwire-moved-"));
  const mock = await startMockResponses((request) => report(request, { n: 1 }));
  const directory = path.join(home, "first");
  await mkdir(directory);
  try {
    await work({
      mock,
      directory,
      moved: path.join(home, "second"),
      procwire: async (cwd, ...words) => {
        const { code, stdout, stderr } = await runCli(words, { cwd, env: { OPENAI_BASE_URL: mock.url } });
        assert.equal(code, 0, stderr);
        return { stdout, stderr };
      },
    });
  } finally {
    await mock.close();
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
}

const FANOUT = ["fanout", "cats.csv", "--instruction", "about {name}", "--output", "out.csv"];

test("in a moved directory the same command makes no call, and a changed table executes only the changed rows", async () => {
  await withDirectory(async ({ mock, directory, moved, procwire }) => {
    await writeFile(path.join(directory, "cats.csv"), "name,age\nTom,1\nTim,2\nTam,3\n");
    await procwire(directory, ...FANOUT);
    assert.equal(mock.requests.length, 3);
    await rename(directory, moved);
    await procwire(moved, ...FANOUT);
    assert.equal(mock.requests.length, 3);
    await writeFile(path.join(moved, "cats.csv"), "name,age\r\nTom,1\r\nTim,7\r\nTam,3\r\n");
    await procwire(moved, ...FANOUT);
    assert.deepEqual(
      mock.requests.slice(3).map((request) => request.item?.itemId),
      ["row-2"],
    );
    assert.match(await readFile(path.join(moved, "out.csv"), "utf8"), /Tim,7,.*completed/);
  });
});

test("a job resumes in a moved directory and writes its results there", async () => {
  await withDirectory(async ({ mock, directory, moved, procwire }) => {
    await writeFile(path.join(directory, "cats.csv"), "name\nTom\nTim\nTam\n");
    await procwire(directory, ...FANOUT, "--sample", "1");
    await rm(path.join(directory, "out.csv"));
    await rename(directory, moved);
    const names = await readdir(path.join(moved, ".procwire/jobs"));
    const id = names.find((name) => name !== "by-key") ?? "";
    await procwire(moved, "jobs", "resume", id);
    assert.equal(mock.requests.length, 3);
    const rows = (await readFile(path.join(moved, "out.csv"), "utf8")).trim().split("\n");
    assert.equal(rows.length, 4);
    await rm(path.join(moved, "out.csv"));
    await procwire(moved, "jobs", "export", id);
    assert.match(await readFile(path.join(moved, "out.csv"), "utf8"), /Tam/);
  });
});

test("a row with a moved image is not executed again, and a row with a changed image is", async () => {
  await withDirectory(async ({ mock, directory, moved, procwire }) => {
    await writeFile(path.join(directory, "cats.csv"), "name,photo\nTom,tom.png\nTim,tim.png\n");
    for (const name of ["tom.png", "tim.png"]) await writeFile(path.join(directory, name), name);
    const look = [...FANOUT, "--image-column", "photo"];
    await procwire(directory, ...look);
    assert.equal(mock.requests.length, 2);
    // Copied, so that only the content of the files is equal; another order makes it another job.
    await cp(directory, moved, { recursive: true });
    await writeFile(path.join(moved, "cats.csv"), "name,photo\nTim,tim.png\nTom,tom.png\n");
    await procwire(moved, ...look);
    assert.equal(mock.requests.length, 2);
    await writeFile(path.join(moved, "tom.png"), "another cat");
    await writeFile(path.join(moved, "cats.csv"), "name,photo\r\nTim,tim.png\r\nTom,tom.png\r\n");
    await procwire(moved, ...look);
    assert.deepEqual(
      mock.requests.slice(2).map((request) => request.item?.itemId),
      ["row-2"],
    );
  });
});
