-- A member is there. Returns what stood at its registration before, "" if that was nothing, no string, or too large to be
-- one.
-- KEYS: registration, seen, expires, status, last. ARGV: id, status, idle and ttl in milliseconds (idle "" for never),
-- the rest of the JSON, how long the index lasts, how many bytes a registration may have.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function int(n) return string.format('%.0f', n) end

local before = ''
local bytes = redis.pcall('STRLEN', KEYS[1])
if type(bytes) == 'table' then
  if not string.find(bytes.err, 'WRONGTYPE', 1, true) then return bytes end
elseif bytes <= tonumber(ARGV[7]) then
  before = redis.call('GET', KEYS[1]) or ''
end

local since = int(now)
if redis.call('HSTRLEN', KEYS[4], ARGV[1]) <= 100 then
  local status, at = string.match(redis.call('HGET', KEYS[4], ARGV[1]) or '', '^(%S+) (%d+)$')
  if status == ARGV[2] then since = at end
end

local last = 'null'
if ARGV[3] ~= '' then last = int(now - ARGV[3]) end
local json = '{"timestamp":' .. int(now) .. ',"status":"' .. ARGV[2] .. '","last_message_at":' .. last .. ',' .. ARGV[5]

redis.call('ZADD', KEYS[2], int(now), ARGV[1])
redis.call('ZADD', KEYS[3], int(now + ARGV[4]), ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[2] .. ' ' .. since)
redis.call('HSET', KEYS[5], ARGV[1], json)
for i = 2, 5 do redis.call('PEXPIRE', KEYS[i], ARGV[6]) end
redis.call('SET', KEYS[1], json, 'PX', ARGV[4])
return before
