import type { CallToolResult, Server, ServerContext } from "@modelcontextprotocol/server";
import type { McpServers } from "../../src/tools/mcp/mcp-http-clients.ts";

/*
 * The tools that the conformance suite calls by name, as its descriptions require. They test content that procwire's
 * tools do not return (images, audio, logs, sampling) over procwire's HTTP sessions.
 */

interface Call {
  args: Record<string, unknown>;
  server: Server;
  context: ServerContext;
}

type ExampleTool = (call: Call) => Promise<CallToolResult> | CallToolResult;
type Content = CallToolResult["content"][number];

/** An image of one red pixel, and audio without samples. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA=";

const content = (...parts: Content[]): CallToolResult => ({ content: parts });
const text = (words: string): Content => ({ type: "text", text: words });
const image: Content = { type: "image", data: PNG, mimeType: "image/png" };
const resource = (uri: string, mimeType: string, words: string): Content => ({
  type: "resource",
  resource: { uri, mimeType, text: words },
});

/** The suite checks that intermediate notifications arrive one by one. */
const pause = () => new Promise((resolve) => setTimeout(resolve, 50));

const TOOLS: Readonly<Record<string, ExampleTool>> = {
  test_simple_text: () => content(text("This is a simple text response for testing.")),
  test_image_content: () => content(image),
  test_audio_content: () => content({ type: "audio", data: WAV, mimeType: "audio/wav" }),
  test_embedded_resource: () =>
    content(resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
  test_multiple_content_types: () =>
    content(
      text("Multiple content types test:"),
      image,
      resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
  test_error_handling: () => ({
    ...content(text("This tool intentionally returns an error for testing")),
    isError: true,
  }),
  test_tool_with_logging: async ({ context }) => {
    for (const message of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
      await context.mcpReq.log("info", message);
      await pause();
    }
    return content(text("logged three times"));
  },
  test_tool_with_progress: async ({ context: { mcpReq } }) => {
    const progressToken = mcpReq._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      const params = { progressToken: progressToken ?? 0, progress, total: 100 };
      if (progressToken !== undefined) await mcpReq.notify({ method: "notifications/progress", params });
      await pause();
    }
    return content(text("told of its progress three times"));
  },
  test_sampling: async ({ args, server, context: { mcpReq } }) => {
    const prompt = { type: "text" as const, text: String(args.prompt) };
    const params = { messages: [{ role: "user" as const, content: prompt }], maxTokens: 100 };
    const answer = await server.createMessage(params, { relatedRequestId: mcpReq.id });
    return content(text(`LLM response: ${JSON.stringify(answer.content)}`));
  },
  test_elicitation: (call) =>
    ask(call, String(call.args.message), {
      username: { type: "string", description: "User's response" },
      email: { type: "string", description: "User's email address" },
    }),
  test_elicitation_sep1034_defaults: (call) =>
    ask(call, "Values with defaults", {
      name: { type: "string", default: "John Doe" },
      age: { type: "integer", default: 30 },
      score: { type: "number", default: 95.5 },
      status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
      verified: { type: "boolean", default: true },
    }),
  test_elicitation_sep1330_enums: (call) =>
    ask(call, "Choices of five kinds", {
      untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
      titledSingle: { type: "string", oneOf: titled("First Option", "Second Option", "Third Option") },
      legacyEnum: {
        type: "string",
        enum: ["opt1", "opt2", "opt3"],
        enumNames: ["Option One", "Option Two", "Option Three"],
      },
      untitledMulti: { type: "array", items: { type: "string", enum: ["option1", "option2", "option3"] } },
      titledMulti: {
        type: "array",
        items: { anyOf: titled("First Choice", "Second Choice", "Third Choice") },
      },
    }),
};

type Form = Parameters<Server["elicitInput"]>[0];
type Fields = Extract<Form, { requestedSchema: unknown }>["requestedSchema"]["properties"];

const titled = (...titles: string[]) => titles.map((title, at) => ({ const: `value${at + 1}`, title }));

async function ask({ server, context }: Call, message: string, properties: Fields): Promise<CallToolResult> {
  const requestedSchema = { type: "object" as const, properties };
  const form = { mode: "form" as const, message, requestedSchema };
  const { action, content: given } = await server.elicitInput(form, { relatedRequestId: context.mcpReq.id });
  return content(text(`Elicitation completed: action=${action}, content=${JSON.stringify(given)}`));
}

/** Creates MCP servers with these tools for procwire's HTTP sessions. */
export function exampleServers({
  ProtocolError,
  ProtocolErrorCode,
  Server,
}: typeof import("@modelcontextprotocol/server")): McpServers {
  return {
    newServer: () => {
      const capabilities = { tools: {}, logging: {} };
      const server = new Server({ name: "example-tools", version: "1" }, { capabilities });
      server.setRequestHandler("tools/list", () => ({
        tools: Object.keys(TOOLS).map((name) => ({
          name,
          description: "a tool of the conformance suite",
          inputSchema: { type: "object" as const },
        })),
      }));
      server.setRequestHandler("tools/call", async ({ params }, context) => {
        const tool = TOOLS[params.name];
        if (!tool) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `no tool \`${params.name}\``);
        return tool({ args: params.arguments ?? {}, server, context });
      });
      return server;
    },
    close: () => undefined,
  };
}
