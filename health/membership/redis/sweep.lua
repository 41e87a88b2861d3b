-- Counts the registrations whose time is over, each once, and forgets who was last seen too long ago and has none.
-- KEYS: seen, expires, status, last. ARGV: how registrations' keys begin, after how many milliseconds to forget.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function int(n) return string.format('%.0f', n) end
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now))
for _, id in ipairs(over) do redis.call('ZREM', KEYS[2], id) end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now - ARGV[2]))) do
  if redis.call('EXISTS', ARGV[1] .. id) == 0 then
    redis.call('ZREM', KEYS[1], id)
    redis.call('ZREM', KEYS[2], id)
    redis.call('HDEL', KEYS[3], id)
    redis.call('HDEL', KEYS[4], id)
  end
end
return #over
