import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { suite, test } from "node:test";
import { FanoutHarness } from "../../../fanout/fanout-harness.ts";
import {
  inputItems,
  inputTexts,
  refusal,
  report,
  answer as respond,
  says,
} from "../../../support/models/mock-responses.ts";

const ONE_ROW = "name\nTom\n";

suite("what a job asks for in its requests", { concurrency: 4 }, () => {
  test("request options are sent with each request, and are part of the job", async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    const request = { temperature: 0, maxOutputTokens: 100, extraBody: { seed: 7 } };
    await harness.run({ table: ONE_ROW, task: { request }, settings: { serviceTier: "flex" } });
    const body = harness.mock.requests[0]?.body;
    assert.equal(body?.temperature, 0);
    assert.equal(body?.max_output_tokens, 100);
    assert.equal(body?.service_tier, "flex");
    assert.equal(body?.seed, 7);
    await harness.run({ table: ONE_ROW, task: { request } });
    assert.equal(harness.mock.requests.length, 1, "the same job");
    await harness.run({ table: ONE_ROW, task: { request: { ...request, temperature: 1 } } });
    assert.equal(harness.mock.requests.length, 2, "another job");
  });

  test("the fallback model receives only the rows that the model refuses or never answers", async () => {
    await using harness = await FanoutHarness.open((request) => {
      if (request.body.model === "big" || request.item?.itemId === "row-1") return report(request);
      return request.item?.itemId === "row-2" ? respond(refusal("no")) : says("hm");
    });
    const { summary } = await harness.run({ settings: { maxAttempts: 2, fallbackModel: "big" } });
    assert.equal(summary.job.status, "completed");
    const models = (item: string) =>
      harness.mock.requests.filter((request) => request.item?.itemId === item).map((request) => request.body.model);
    assert.deepEqual(models("row-1"), ["m"]);
    assert.deepEqual(models("row-2"), ["m", "big"]);
    assert.deepEqual(models("row-3"), ["m", "m", "m", "m", "big"]);
  });

  test("a row that the fallback cannot answer either has failed", async () => {
    await using harness = await FanoutHarness.open(() => respond(refusal("never")));
    const { summary } = await harness.run({ table: ONE_ROW, settings: { fallbackModel: "big" } });
    assert.deepEqual(summary.failuresByClass, [["refused", 1]]);
    assert.equal(harness.mock.requests.length, 2);
  });

  test("the answer with the most votes wins, and no more agents run than needed", async () => {
    await using harness = await FanoutHarness.open((request) => {
      const answers = [{ a: 1, b: 2 }, { a: 0 }, { b: 2, a: 1 }, { a: 1, b: 2 }];
      return report(request, answers[request.index]);
    });
    const { summary } = await harness.run({ table: ONE_ROW, task: { votes: 5 }, concurrency: 1 });
    assert.equal(summary.job.status, "completed");
    assert.equal(harness.mock.requests.length, 4);
    const [row] = await harness.output();
    assert.equal(row?.result_json, '{"a":1,"b":2}');
    assert.equal(summary.counts.usage.inputTokens, 4, "every vote is paid for");
  });

  test("an agent without an answer has no vote; a row without any votes fails as no_report", async () => {
    await using harness = await FanoutHarness.open((request) =>
      request.item?.itemId === "row-1" && request.index % 2 === 0 ? report(request) : says("hm"),
    );
    const { summary } = await harness.run({
      table: "name\nTom\nKit\n",
      task: { votes: 3 },
      settings: { maxAttempts: 1 },
      concurrency: 1,
    });
    assert.equal(summary.counts.completed, 1);
    assert.deepEqual(summary.failuresByClass, [["no_report", 1]]);
  });

  test("image columns are attached: URLs as they are, files by their content", async () => {
    await using harness = await FanoutHarness.open((request) => report(request));
    const file = path.join(harness.directory, "cat.png");
    const pdf = path.join(harness.directory, "cat.pdf");
    await writeFile(file, "PNG");
    await writeFile(pdf, "PDF");
    const data = `data:image/png;base64,${"A".repeat(1000)}`;
    const { summary } = await harness.run({
      table: `name,pic\nurl,https://x.example/cat.png\nfile,${file}\npdf,${pdf}\nnone,\nbad,/etc/passwd\ngone,/no/such.png\ndata,"${data}"\n`,
      task: { imageColumns: ["pic"] },
      concurrency: 1,
    });
    const parts = harness.mock.requests.map(({ body }) => {
      const content = inputItems(body)[0]?.content;
      return Array.isArray(content) ? content.slice(1) : [];
    });
    assert.deepEqual(parts, [
      [{ type: "input_image", image_url: "https://x.example/cat.png" }],
      [{ type: "input_image", image_url: "data:image/png;base64,UE5H" }],
      [{ type: "input_file", filename: "cat.pdf", file_data: "data:application/pdf;base64,UERG" }],
      [],
      [{ type: "input_image", image_url: data }],
    ]);
    assert.match(inputTexts(harness.mock.requests[4]?.body ?? {})[0] ?? "", /"pic": "\(attached\)"/);
    assert.deepEqual(summary.failuresByClass, [["spawn", 2]]);
    const output = await harness.output();
    assert.match(output[4]?.last_error ?? "", /\/etc\/passwd in pic cannot be attached/);
    assert.equal(output[4]?.attempt_count, "1");
    await assert.rejects(
      harness.run({ table: ONE_ROW, task: { imageColumns: ["face"] } }),
      /--image-column face is not a column of the table/,
    );
  });
});
