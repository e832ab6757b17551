/** Types in the signatures of the adapters. */

export type { NetworkTarget } from "../tools/network/network-target.ts";
export type {
  ApprovalAnswer,
  ApprovalRequest,
  NetworkApproval,
  PromptCaller,
} from "../tools/policy/approval.ts";
export type { ShellChoice } from "../tools/policy/shell-choice.ts";
export type { JsonSchema, Tool, ToolCallContext, ToolDefinition, ToolOutput } from "../tools/tool.ts";
