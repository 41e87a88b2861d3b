-- A member leaves. What is not in the index of this scope stays.
-- KEYS: registration, seen, expires, status, last. ARGV: id.
if redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then redis.call('DEL', KEYS[1]) end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('HDEL', KEYS[5], ARGV[1])
return 0
