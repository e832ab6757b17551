import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkText } from "../../../scripts/prose/check-text.ts";
import { RULES } from "../../../scripts/prose/rules.ts";

const LONG = "The server reads one frame and ".repeat(6);

/** Per rule a comment or paragraph that breaks it, and a similar one without a finding. */
const EXAMPLES: Record<string, { bad: string; good: string; file?: string }> = {
  "indefinite-subject": { bad: "Closed by whoever opened it.", good: "The caller that opened it closes it." },
  tell: { bad: "The client is told the exit code.", good: "Clients can tell the streams apart." },
  wall: { bad: "Runs behind walls.", good: "Measures wall time." },
  door: { bad: "The front door rejects it.", good: "The gateway rejects it." },
  figures: { bad: "Prints the figures.", good: "Prints the metrics." },
  keeper: { bad: "The keeper restarts the server.", good: "The supervisor restarts the server." },
  far: { bad: "Copies to the far host.", good: "Copies to the remote host, which is far more work." },
  "of-its-own": { bad: "Has a thread of its own.", good: "Has its own thread." },
  "by-itself": { bad: "Reconnects by itself.", good: "Reconnects automatically." },
  "under-way": { bad: "Cancels the calls under way.", good: "Cancels the calls in flight." },
  "go-on": { bad: "The process goes on.", good: "The key goes on the ring." },
  "so-many": { bad: "Waits for so long.", good: "Waits for the timeout." },
  "riddle-opening": { bad: "What the client sent.", good: "Whatsoever opens with another word." },
  "free-relative": { bad: "Sends what is left.", good: "Sends the rest, no matter what is left." },
  "one-that": { bad: "Picks one that is idle.", good: "Needs at least one that is idle." },
  "is-no-noun": { bad: "The path is no directory.", good: "There is no directory." },
  "passive-preposition": { bad: "The exit is waited for.", good: "The server waits for the exit." },
  "is-asked": { bad: "The user is asked first.", good: "The server prompts the user first." },
  "conditional-where": {
    bad: "Returns null where nothing matches.",
    good: "Returns null if no line matches.",
  },
  "as-it-came": { bad: "Passes the text as it came.", good: "Passes the text unchanged." },
  "has-it": { bad: "As the kernel has it.", good: "As the kernel defines it." },
  thing: { bad: "Counts things.", good: "The same thing happens on close." },
  person: { bad: "A person types it.", good: "A user types it." },
  folder: { bad: "Creates the folder.", good: "Creates the directory." },
  per: { bad: "Writes one record a line.", good: "Writes one record per line." },
  beside: { bad: "Lies beside the socket.", good: "Lies besides, next to the socket." },
  anew: { bad: "Reads the file anew.", good: "Reads the file again." },
  "knows-no": { bad: "Knows nothing of sessions.", good: "Does not import sessions." },
  "hear-of": { bad: "The client hears of the exit.", good: "The client receives the exit." },
  "says-so": { bad: "The log says so.", good: "The log reports the exit." },
  news: { bad: "Waits for news.", good: "Waits for new output." },
  "look-noun": { bad: "Takes another look.", good: "Names that look like paths." },
  "give-way": { bad: "Old output gives way.", good: "The log evicts old output." },
  "let-go": { bad: "Lets go of the lock.", good: "Releases the lock." },
  stands: { bad: "The id stands in the header.", good: "The letter stands for the id." },
  straight: { bad: "Copies straight to the pipe.", good: "Copies directly to the pipe." },
  "whose-it-is": { bad: "Finds whose it is.", good: "Finds the owner." },
  mend: { bad: "Mends the file, with rooms.", good: "Repairs the file, with room." },
  "rid-had": { bad: "No lock can be had.", good: "No lock is available." },
  answer: { bad: "Sends the answer.", good: "Sends the response.", file: "src/server/example.ts" },
  "long-sentence": {
    bad: `${LONG}stops.`,
    good: LONG.replaceAll("frame and", "frame."),
    file: "docs/example.md",
  },
  "wide-comment": { bad: "Reads. ".repeat(20), good: "Reads. ".repeat(19) },
};

describe("prose rules", () => {
  test("have one example each", () => {
    assert.deepEqual(
      Object.keys(EXAMPLES),
      RULES.map(({ id }) => id),
    );
  });

  for (const [rule, { bad, good, file = "src/example.ts" }] of Object.entries(EXAMPLES)) {
    const rulesIn = (text: string) =>
      checkText(file, file.endsWith(".md") ? text : `// ${text}\n`).findings.map((finding) => finding.rule);
    test(`${rule} reports the bad sentence only`, () => {
      assert.ok(rulesIn(bad).includes(rule), bad);
      assert.deepEqual(rulesIn(good), [], good);
    });
  }

  test("allow an answer outside of the wire layers", () => {
    assert.deepEqual(checkText("src/agent/example.ts", "// Sends the answer.\n").findings, []);
  });

  test("allow a question as a heading", () => {
    assert.deepEqual(checkText("docs/example.md", "# What is logged\n").findings, []);
    assert.equal(checkText("docs/example.md", "The server sends what is logged.\n").findings.length, 1);
  });

  test("count a phrase for the first rule that matches it", () => {
    const { findings } = checkText("src/example.ts", "// Skips output where nobody reads.\n");
    assert.deepEqual(
      findings.map(({ rule }) => rule),
      ["indefinite-subject"],
    );
  });
});
